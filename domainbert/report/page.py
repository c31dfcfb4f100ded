"""One self-contained HTML page of sections, with style and script inside, which asks the network for nothing.

Its content security policy allows that style and that script by their hashes and nothing else; so a template has no
`style` and no `on...` attributes. Texts are escaped by Jinja2. The same sections give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from domainbert import __version__
from domainbert.base.files import told_if_full, write_text

MOST_BYTES = 2_000_000
"""Largest page that opens at once in a browser, and goes with an e-mail."""

_PICTURE = 'src="data:image/'  # as templates write it: the quotes of texts are escaped
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Section:
    """One part of a page, with its own entry in the contents."""

    title: str
    template: str
    """A file in `templates/`. What stands beside it as `NAME.css` and `NAME.js` goes into the page with it."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The variables of the template, plain values; all of it is escaped but `Markup`."""

    @property
    def anchor(self) -> str:
        """The name by which links find it: "Where it goes wrong" is `where-it-goes-wrong`."""
        return re.sub(r"[\W_]+", "-", self.title.lower()).strip("-")


def write_page(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Write the page, completely or not at all; `DomainbertError` if the disk is full."""
    save_page(path, page_text(title, sections))


def save_page(path: Path, text: str) -> None:
    """Write what `page_text` has made; `DomainbertError` if the disk is full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with told_if_full(path.parent):
        write_text(path, text)


def page_text(title: str, sections: Sequence[Section]) -> str:
    """The HTML of a page; `ValueError` if two sections have the same anchor."""
    anchors = [section.anchor for section in sections]
    if len(set(anchors)) < len(anchors):
        raise ValueError(f"sections need titles that differ; found {anchors}")
    environment = _environment()
    bodies = [Markup(environment.get_template(one.template).render(one.data)) for one in sections]
    names = list(dict.fromkeys(["page", *(one.template.removesuffix(".html") for one in sections)]))
    style, script = (_joined(f"{name}.{kind}" for name in names) for kind in ("css", "js"))
    return environment.get_template("page.html").render(
        title=title,
        sections=list(zip(sections, bodies, strict=True)),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script, pictures=any(_PICTURE in body for body in bodies)),
        version=__version__,
    )


def _policy(style: str, script: str, pictures: bool) -> str:
    """The content security policy (W3C, CSP level 3) of a page with this style and this script, and perhaps with
    pictures that are part of it."""
    allowed = {"style-src": style, "script-src": script}
    parts = [f"{name} 'sha256-{_digest(text)}'" for name, text in allowed.items()]
    parts += ["img-src data:"] if pictures else []
    return "; ".join(["default-src 'none'", *parts, "base-uri 'none'", "form-action 'none'"])


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _joined(names: Iterable[str]) -> str:
    files = [_TEMPLATES / name for name in names]
    return "\n".join(file.read_text(encoding="utf-8").strip() for file in files if file.is_file())


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("domainbert.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
