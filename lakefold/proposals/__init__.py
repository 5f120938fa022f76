"""One proposal by hand: send it, ask what became of it, send a refused one again."""
