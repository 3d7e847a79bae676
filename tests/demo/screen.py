"""What is seen: headings, short sentences, commands, tables, ticks and crosses.

On a terminal with colours; as plain lines when standard output is none, or with NO_COLOR set.
"""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDTH = 96
INDENT = 3
READING_SECONDS = 1.0
# One colour for each job; a name keeps its colour throughout.
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red")


class Screen:
    """Writes to ``stream`` (standard output) and flushes after every piece."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        self.plain = not stream.isatty() or bool(os.environ.get("NO_COLOR"))
        self._console = Console(
            file=stream, highlight=False, markup=False, emoji=False,
            color_system=None if self.plain else "auto",
        )  # fmt: skip
        room = WIDTH if not stream.isatty() else min(WIDTH, self._console.width)
        self._console.width = room
        self._text_width = room - INDENT - 2
        self._colours: dict[str, str] = {}
        self._headings = 0
        self._after_gap = False

    def title(self, text: str) -> None:
        self.gap()
        self._print(Text(text, style="bold"))

    def heading(self, text: str) -> None:
        """The next numbered heading; on a terminal after a moment to read what is above."""
        if self._headings and not self.plain:
            time.sleep(READING_SECONDS)
        self._headings += 1
        line = f"{self._headings}. {text}"
        self.gap()
        self._print(Text(f"{line}\n{'─' * len(line)}", style="bold blue"))

    def say(self, text: str) -> None:
        """A paragraph, filled to the width."""
        self._indented(Text(textwrap.fill(" ".join(text.split()), self._text_width)))

    def commands(self, *commands: str) -> None:
        """What a person would type."""
        for command in commands:
            self._indented(Text.assemble(("$ ", "dim"), (command, "bold green")))

    def output(self, text: str) -> None:
        """What a command prints, line by line as it is."""
        for line in text.splitlines():
            parts = textwrap.wrap(line, self._text_width, subsequent_indent=" " * 4) or [""]
            for part in parts:
                self._indented(Text(f"  {part}", style="dim"))

    def tick(self, text: str) -> None:
        self._claim("✓", "bold green", text)

    def cross(self, text: str) -> None:
        self._claim("✗", "bold red", text)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Columns under a head; cells that are names of jobs or racks are coloured alike."""
        table = Table(
            box=None if self.plain else box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False,
            padding=(0, 2, 0, 0),
        )  # fmt: skip
        for title in head:
            table.add_column(title, no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell, style=self._colours.get(cell, "")) for cell in row))
        self.gap()
        self._indented(table)
        self.gap()

    def colour(self, *words: str) -> None:
        """Give these words colours of their own in tables."""
        for word in words:
            self._colours.setdefault(word, COLOURS[len(self._colours) % len(COLOURS)])

    def gap(self) -> None:
        """An empty line, unless there is one already."""
        if not self._after_gap:
            self._print(Text(""))
        self._after_gap = True

    def _claim(self, mark: str, style: str, text: str) -> None:
        lines = textwrap.wrap(text, self._text_width - 2)
        self._indented(Text.assemble((f"{mark} ", style), "\n  ".join(lines)))

    def _indented(self, what: RenderableType) -> None:
        self._print(Padding(what, (0, 0, 0, INDENT)))

    def _print(self, what: RenderableType) -> None:
        with self._console.capture() as captured:
            self._console.print(what)
        text = captured.get()
        self._after_gap = False
        stream = self._console.file
        stream.write("".join(f"{line.rstrip(' ')}\n" for line in text.splitlines()))
        stream.flush()
