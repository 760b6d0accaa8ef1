"""A project's own dispatch policy: the keys of `[engines]` copied when the project is made.

A project keeps its copy whatever the file says later; `changed` alters one key of it, and the environment is
laid over it where it is used, never stored in it.
"""

from __future__ import annotations

from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from pydantic import ValidationError

from vibey.domain.errors import InvalidInput, SettingsError
from vibey.settings.model import PolicyKeys
from vibey.settings.problems import Part, dotted, known_keys, problems_of
from vibey.settings.source import OVERLAID, overlay, policy_variable, value_of
from vibey.settings.values import nearest_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vibey.settings.settings import Settings


# What a key means in a policy that was stored before the key existed, or before its default was another.
MEANT_BEFORE: Mapping[str, object] = MappingProxyType({"paid_fallback": "allow", "paid_daily_cap_covers": "exceptions"})


class ProjectPolicy(PolicyKeys):
    """Mode, overflow threshold, cap and what it covers, fallback rule and measurement keys of one project."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The policy a new project gets: what the file says, without the environment of whoever makes it."""
        declared = settings.declared
        return cls.model_validate({key: getattr(declared, key) for key in cls.model_fields})

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> Self:
        """The policy `to_json` wrote; keys of a later version are ignored.

        A missing key means what it did when policies were stored without it: `MEANT_BEFORE`, else its default.

        Raises `SettingsError` for a key this version knows with a value it refuses.
        """
        known = {key: value for key, value in stored.items() if key in cls.model_fields}
        return cls._checked({**MEANT_BEFORE, **known}, "stored project policy", {})

    def to_json(self) -> dict[str, object]:
        """The policy as a JSON object."""
        values = {key: getattr(self, key) for key in type(self).model_fields}
        return {key: float(value) if isinstance(value, Decimal) else value for key, value in values.items()}

    def changed(self, key: str, text_value: str) -> Self:
        """The policy with one key set from typed text; raises `InvalidInput` naming key and range."""
        field = type(self).model_fields.get(key)
        if field is None:
            known = known_keys(type(self))
            near = nearest_name(key, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise InvalidInput("project key", key, f"one of {', '.join(known)}{hint}")
        try:
            return self._with({key: value_of(field, text_value)}, "project policy", {})
        except SettingsError as error:
            problem = error.problems[0]
            raise InvalidInput(key, text_value, problem.expected.removeprefix("expected ")) from error

    def overlaid(self, environ: Mapping[str, str]) -> Self:
        """The policy in force under `environ`; raises `SettingsError` naming each malformed variable."""
        variables = {key: policy_variable(key) for key in OVERLAID}
        over = overlay(type(self), variables, environ)
        return self._with(over, "environment", variables) if over else self

    def _with(self, values: Mapping[str, object], source: str, names: Mapping[str, str]) -> Self:
        kept = {key: getattr(self, key) for key in type(self).model_fields}
        return self._checked({**kept, **values}, source, names)

    @classmethod
    def _checked(cls, values: Mapping[str, object], source: str, names: Mapping[str, str]) -> Self:
        def naming(place: Sequence[Part]) -> str:
            return names.get(str(place[0]), dotted(place)) if place else source

        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            found = problems_of(error, lambda _: known_keys(cls), naming, lambda _: "")
            raise SettingsError(source, tuple(found)) from error
