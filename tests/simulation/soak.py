"""Plays seeds for as long as asked, or a seed again: `python -m tests.simulation.soak --help`."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections import Counter
from multiprocessing import Pool
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.scenario import FailedError, play
from tests.simulation.transitions import in_words, legal
from tests.simulation.world import transcript

if TYPE_CHECKING:
    from tests.simulation.transitions import Transition

TELL_EVERY_S = 10.0
CHUNK = 10


def main() -> int:
    """Returns 1 if a seed failed."""
    parser = ArgumentParser(prog="python -m tests.simulation.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, help="play for so long")
    parser.add_argument("--seeds", type=int, help="play so many")
    parser.add_argument("--first", type=int, help="the first seed; at random unless given")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--seed", type=int, help="play this one only")
    parser.add_argument("--transcript", action="store_true", help="with --seed: print the whole history")
    options = parser.parse_args()
    if options.seed is not None:
        return play_seed(options.seed, with_history=options.transcript)
    first = Random().randrange(10**9) if options.first is None else options.first
    return many(first, options.seeds, options.seconds, options.jobs)


def play_seed(seed: int, *, with_history: bool) -> int:
    """Plays a seed. A failure prints its whole history."""
    try:
        hub = play(seed, None).hub
    except FailedError as error:
        say(str(error))
        return 1
    if with_history:
        say(transcript(hub))
    say(f"seed {seed}: {hub.steps} steps, all well")
    return 0


def many(first: int, seeds: int | None, seconds: float | None, jobs: int) -> int:
    """Plays seeds from the first on until so many are played, the time is over, or a seed fails."""
    begun = reported = time.monotonic()
    played = steps = 0
    taken: Counter[Transition] = Counter()
    with Pool(jobs) as pool:
        while played != seeds and (seconds is None or time.monotonic() - begun < seconds):
            most = CHUNK * jobs if seeds is None else min(CHUNK * jobs, seeds - played)
            for more, transitions, failure in pool.map(
                outcome, range(first + played, first + played + most), 1
            ):
                if failure:
                    say(f"{failure}\n\nafter {played} that went well")
                    return 1
                played, steps = played + 1, steps + more
                taken.update(transitions)
            now = time.monotonic()
            if now - reported > TELL_EVERY_S:
                reported = now
                say(f"{played} seeds from {first} on, {steps} steps, {steps / (now - begun):.0f} a second")
    say(f"{played} seeds from {first} on, {steps} steps in {time.monotonic() - begun:.0f} s, all well")
    say(report(taken))
    return 0


def report(taken: Counter[Transition]) -> str:
    """Returns how often each transition of a state machine was taken, the rarest first."""
    rows = sorted((taken[transition], in_words(transition)) for transition in legal())
    return "\n".join(["transitions:", *(f"{count:9}  {words}" for count, words in rows)])


def outcome(seed: int) -> tuple[int, Counter[Transition], str]:
    """How many steps the seed took, which transitions of states, and what failed."""
    try:
        hub = play(seed).hub
    except FailedError as error:
        return 0, Counter(), str(error)
    return hub.steps, hub.taken, ""


def say(text: str) -> None:
    """A line on stdout, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
