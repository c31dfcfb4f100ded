"""Self-contained HTML page of sections with embedded style and script, without network requests.

Its content security policy allows only this style and this script, by their hashes, so templates must not use `style`
or `on...` attributes. Jinja2 escapes all texts. The output is deterministic.
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
from domainbert.base.errors import counted
from domainbert.base.files import report_full_disk, write_text
from domainbert.base.redact import redact

MAX_BYTES = 2_000_000
"""Maximum size of a page, so that it opens quickly and can be sent by e-mail."""

_PICTURE = 'src="data:image/'  # only templates can write this: quotes in texts are escaped
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Section:
    """Section of a page, with an entry in the table of contents."""

    title: str
    template: str
    """File in `templates/`. `NAME.css` and `NAME.js` in the same folder are embedded in the page."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the template as plain values; all values except `Markup` are escaped."""

    @property
    def anchor(self) -> str:
        """Anchor for links: the title "Score against cost" gives `score-against-cost`."""
        return re.sub(r"[\W_]+", "-", self.title.lower()).strip("-")


def save_page(path: Path, text: str) -> None:
    """Write the text of a page atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with report_full_disk(path.parent):
        write_text(path, text)


def page_text(title: str, sections: Sequence[Section]) -> str:
    """Return the HTML of a page; raise `ValueError` if two sections have the same anchor."""
    anchors = [section.anchor for section in sections]
    if len(set(anchors)) < len(anchors):
        raise ValueError(f"section titles must be different; found {anchors}")
    environment = _environment()
    bodies = [Markup(environment.get_template(section.template).render(section.data)) for section in sections]
    names = dict.fromkeys(["page", *(section.template.removesuffix(".html") for section in sections)])  # without copies
    style, script = (_read_templates(f"{name}.{suffix}" for name in names) for suffix in ("css", "js"))
    return environment.get_template("page.html").render(
        title=title,
        sections=list(zip(sections, bodies, strict=True)),
        style=Markup(style),
        script=Markup(script),
        policy=_security_policy(style, script, pictures=any(_PICTURE in body for body in bodies)),
        version=__version__,
    )


def _security_policy(style: str, script: str, pictures: bool) -> str:
    """Return a content security policy (W3C, CSP level 3) for this style and script."""
    allowed = {"style-src": style, "script-src": script}
    parts = ["default-src 'none'"]
    for name, text in allowed.items():
        digest = hashlib.sha256(text.encode("utf-8")).digest()
        parts.append(f"{name} 'sha256-{base64.b64encode(digest).decode('ascii')}'")
    if pictures:
        parts.append("img-src data:")
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


def _read_templates(names: Iterable[str]) -> str:
    files = [_TEMPLATES / name for name in names]
    return "\n".join(file.read_text(encoding="utf-8").strip() for file in files if file.is_file())


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("domainbert.report"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else redact(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["counted"] = counted
    return environment
