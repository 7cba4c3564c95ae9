"""Check links and images of the built pages: ``check_links.py build/docs``."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Parser that collects the links and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag, attrs) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" and value:
                self.places.add(value)


def broken(folder: Path) -> list[str]:
    """Return the broken links of all pages in a folder."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        if "_static" in path.parts:
            continue  # templates of the theme
        pages[path.resolve()] = page = Page()
        page.feed(path.read_text(encoding="utf-8"))
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            name = path.relative_to(folder.resolve())
            if not target.exists():
                found.append(f"{name}: {link} does not exist")
                continue
            place = unquote(parts.fragment)
            if place and target in pages and place not in pages[target].places:
                found.append(f"{name}: {link} names a missing anchor")
    return found


if __name__ == "__main__":
    wrong = broken(Path(sys.argv[1]))
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)
