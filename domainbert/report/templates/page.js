"use strict";
// Everything can be read without this script; it adds sorting, filters and tooltips.

// Tooltips: an element with data-tip shows it where the pointer or the focus is.
(() => {
  const tip = Object.assign(document.createElement("div"), { id: "tip", hidden: true });
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  const show = (event) => {
    const owner = event.target.closest("[data-tip]");
    tip.hidden = !owner;
    if (!owner) return;
    tip.textContent = owner.dataset.tip;
    const box = owner.getBoundingClientRect();
    const left = Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 6;
    tip.style.left = `${scrollX + Math.max(8, left)}px`;
    tip.style.top = `${scrollY + (above > 0 ? above : box.bottom + 6)}px`;
  };
  document.addEventListener("mouseover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
})();

// Sorting: a click on a column's head sorts the rows by it, numbers by size; a second click turns the order.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent.trim();
    return text === "" || isNaN(text) ? text : Number(text);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (down ? -1 : 1) * compare(value(a, column), value(b, column)));
      table.tBodies[0].append(...rows);
    });
  });
}

// Filters: each select of a form.filter hides the items of its list whose data-NAME, a list in JSON, lacks the chosen
// value.
for (const form of document.querySelectorAll("form.filter")) {
  const items = [...document.getElementById(form.dataset.list).children];
  const selects = [...form.querySelectorAll("select")];
  const count = form.querySelector("output");
  const apply = () => {
    for (const item of items) {
      item.hidden = selects.some(({ name, value }) => value && !JSON.parse(item.dataset[name]).includes(value));
    }
    count.textContent = `${items.filter((item) => !item.hidden).length} of ${items.length}`;
  };
  form.addEventListener("change", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  apply();
}
