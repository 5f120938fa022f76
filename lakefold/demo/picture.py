"""The demo's live picture on a terminal: the parts from top to bottom, with the progress of each."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lakefold.demo.state import DemoProgress

_NAME_WIDTH: Final = 13
_BAR_WIDTH: Final = 20
_FRAMES: Final = 8


class Picture:
    """A `Screen` that prints notes and redraws a panel below them."""

    def __init__(self, stream: IO[str], state: DemoProgress) -> None:
        self._state = state
        self._console = Console(file=stream, highlight=False)
        self._live = Live(
            get_renderable=lambda: drawn(self._state),
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._drawn_at = -1.0

    @property
    def width(self) -> int:
        """The number of characters in a line."""
        return self._console.width

    def note(self, text: str, *, loud: bool = False) -> None:
        """Prints the line above the panel."""
        line = Text(f"{self._state.elapsed:6.1f} s  ", style="dim")
        line.append(text, style="bold red not dim" if loud else "not dim")
        self._console.print(line)

    def refresh(self, state: DemoProgress) -> None:
        """Draws the panel again, at most a few times a second."""
        if state.elapsed - self._drawn_at >= 1 / _FRAMES:
            self._drawn_at = state.elapsed
            self._live.refresh()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def drawn(state: DemoProgress) -> RenderableType:
    """Returns the picture of a state."""
    flow = Table.grid(padding=(0, 2))
    flow.add_column(style="bold cyan", no_wrap=True, min_width=_NAME_WIDTH)
    flow.add_column(no_wrap=True, min_width=_BAR_WIDTH)
    flow.add_column(overflow="ellipsis", no_wrap=True)
    folding = state.committer.endswith("folding")
    flow.add_row("events", _bar(state.sent, state.rows), f"{state.sent:,} of {state.rows:,} in the topic")
    flow.add_row("  ↓ query", _bar(state.written, state.rows), f"Spark: {state.query}")
    flow.add_row("  ↓ log", "", f"{state.batches} batches, one transaction each")
    flow.add_row("  ↓ committer", "", Text(state.committer, style="" if folding else "bold yellow"))
    flow.add_row("  ↓ table", "", f"version {state.version}" if state.version else "not created yet")
    services = f"{state.services} append at once: {state.service_rows:,} rows" if state.services else ""
    flow.add_row("  ↓ tail", _bar(state.visible, state.rows), f"{state.visible:,} rows read")
    flow.add_row("services", "", services)
    numbers = Text.assemble(
        ("rows/s ", "dim"),
        f"{state.rate:>9,.0f}   ",
        ("lag ", "dim"),
        f"{state.lag:>9,} rows   ",
        ("versions ", "dim"),
        f"{state.version}",
    )
    title = f"[bold]lakefold demo[/]  {state.elapsed:.0f} s  {state.doing}"
    return Panel(Group(flow, Text(""), numbers), title=title, title_align="left", border_style="cyan")


def _bar(done: int, total: int) -> ProgressBar:
    return ProgressBar(total=total, completed=done, width=_BAR_WIDTH)
