"""Measurements of Lakefold beside its peers, in one run on one machine: `make bench`.

Each part sets up what it needs (tables with real data files; a broker and a committer process if it needs
them), measures, checks that what it measured is right, and returns plain figures. `__main__` prints them and
keeps them as JSON.
"""
