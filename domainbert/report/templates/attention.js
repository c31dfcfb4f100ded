// A head that is opened gets its map large, with the pieces beside it; pointing at a place says how much it is.
{
  const pieces = [...document.querySelectorAll(".pieces li")].map((item) => item.textContent);
  const count = pieces.length, cell = Math.max(10, Math.min(24, Math.round(480 / count)));
  const short = (piece) => (piece.length > 14 ? `${piece.slice(0, 13)}…` : piece);
  const side = 8 + 7 * Math.max(...pieces.map((piece) => short(piece).length)), size = count * cell;
  const made = (name, facts, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(facts)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };
  const levels = (image) => {
    const canvas = Object.assign(document.createElement("canvas"), { width: count, height: count });
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, count, count).data;
  };
  const draw = (head) => {
    const image = head.querySelector("img"), grey = levels(image);
    const whole = side + size + 2;
    const svg = made("svg", { viewBox: `0 0 ${whole} ${whole}`, role: "img", "aria-label": image.alt });
    svg.style.width = svg.style.height = `${whole}px`;
    const map = made("image", { href: image.src, x: side, y: side, width: size, height: size });
    svg.append(map);
    pieces.forEach((piece, place) => {
      const middle = side + (place + 0.5) * cell;
      svg.append(made("text", { x: side - 5, y: middle + 4, "text-anchor": "end" }, short(piece)));
      svg.append(made("text", { transform: `translate(${middle + 4} ${side - 5}) rotate(-90)` }, short(piece)));
    });
    const at = made("rect", { class: "at", width: cell, height: cell, visibility: "hidden" });
    svg.append(at);
    const figure = document.createElement("figure"), value = document.createElement("output");
    svg.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      const column = Math.floor(((event.clientX - box.left) / box.width) * count);
      const row = Math.floor(((event.clientY - box.top) / box.height) * count);
      const inside = Math.min(row, column) >= 0 && Math.max(row, column) < count;
      at.setAttribute("visibility", inside ? "visible" : "hidden");
      if (!inside) return;
      at.setAttribute("x", side + column * cell);
      at.setAttribute("y", side + row * cell);
      const share = ((255 - grey[4 * (row * count + column)]) / 255) ** 2;
      value.textContent = `${pieces[row]} → ${pieces[column]}: ${share.toFixed(2)}`;
    });
    figure.append(svg, value);
    head.querySelector(".large").prepend(figure);
    head.classList.add("drawn");
  };
  for (const head of document.querySelectorAll(".head")) {
    head.addEventListener("toggle", () => { if (head.open && !head.classList.contains("drawn")) draw(head); });
  }
}
