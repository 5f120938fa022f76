"""Surveys a table in the format that it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_maintenance.formats import FORMATS
from lakefold_reader.opening import in_its_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_maintenance.format import FormatSurveyor, TableSurvey
    from lakefold_reader.format.source import Source


@dataclass
class Surveyor:
    """Surveys one branch of a table repeatedly. `settings`: the policy's, as `policy_of` takes them."""

    source: Source
    settings: Mapping[str, str] = field(default_factory=dict)
    _surveyor: FormatSurveyor | None = field(default=None, init=False, repr=False)

    def survey(self) -> TableSurvey:
        """Returns the newest version's figures. Raises as `FormatSurveyor.survey`."""
        if self._surveyor is not None:
            return self._surveyor.survey()
        return in_its_format(self.source, self._first)

    def _first(self, source: Source) -> TableSurvey:
        surveyor = FORMATS[source.format.name].surveyor(source, self.settings)
        survey = surveyor.survey()
        self._surveyor = surveyor
        return survey
