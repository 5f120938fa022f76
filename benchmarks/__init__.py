"""Measurements of Lakefold beside its peers, in one run on one machine: `make bench`.

Each part makes its own ground (a broker, a committer process, tables with real data files), measures, proves
that what it measured is right, and returns plain figures. `__main__` prints them and keeps them as JSON.
"""
