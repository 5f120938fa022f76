"""Measurements of Lakefold beside its peers, in one run on one machine: `make bench`.

Each part makes its own ground (tables with real data files; a broker and a committer process where it needs
them), measures, proves that what it measured is right, and returns plain figures. `__main__` prints them and
keeps them as JSON.
"""
