"""Write the generated reference pages."""

from __future__ import annotations

from docs.generate import pages

for file, text in pages().items():
    file.write_text(text, encoding="utf-8")
