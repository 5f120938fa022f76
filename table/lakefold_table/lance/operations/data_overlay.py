"""DataOverlay: why it is refused whatever the table (decision 0011).

Files of single values that are laid over those of a fragment when it is read. pylance 14 commits them, then
opens the table no more: flag 64 is refused unless an environment variable says otherwise (Lance fact 6.16).
"""

from lakefold_table.entry import Invalid

REFUSED = Invalid(
    "data overlays are not folded: Lance clients open no table that has some (feature flag 64)",
    "propose the columns whole: an Update that rewrites columns, or a DataReplacement",
)
"""The answer to every proposal of one."""
