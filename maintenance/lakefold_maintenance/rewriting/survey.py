"""Surveys a table in the format that it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_maintenance.formats import FORMATS
from lakefold_reader.format.source import Source
from lakefold_reader.formats import in_its_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_maintenance.format import FormatSurveyor, TableSurvey


@dataclass
class Surveyor:
    """Surveys one branch of a table repeatedly. `settings`: the policy's, as `policy_of` takes them."""

    source: Source
    settings: Mapping[str, str] = field(default_factory=dict)
    _surveyor: FormatSurveyor | None = field(default=None, init=False, repr=False)

    def survey(self) -> TableSurvey:
        """Returns the newest version's figures. Raises as `FormatSurveyor.survey`.

        It is read by a new source each time: a version that a source keeps would be taken for that of its
        number in a table that was dropped and made anew.
        """
        source = self.source
        return in_its_format(Source.on(source.storage, source.format, source.options), self._survey)

    def _survey(self, source: Source) -> TableSurvey:
        surveyor = self._surveyor
        if surveyor is None or surveyor.source.format.name != source.format.name:
            surveyor = FORMATS[source.format.name].surveyor(source, self.settings)
        surveyor.source = source
        survey = surveyor.survey()
        self._surveyor = surveyor
        return survey
