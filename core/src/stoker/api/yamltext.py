"""YAML documents as plain data that remembers the line of each field.

Scalars mean what they mean to kubectl (YAML 1.1 booleans and octal numbers), except that dates stay strings. Keys that
stand twice are refused. Not for trusted input only: size, number of values and depth are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from stoker.api.errors import StokerError
from stoker.api.fielderror import Location, field_path
from stoker.api.reasons import Reason

MAX_BYTES = 1 << 20  # as much as an API server takes
MAX_VALUES = 100_000  # aliases of aliases can stand for billions
MAX_DEPTH = 64


class _Loader(yaml.SafeLoader):
    """SafeLoader without dates and without numbers to the base of sixty, which kubectl does not know either."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if not tag.endswith((":timestamp", ":int", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))"
        r"|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"([-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$"),
    list("-+0123456789"),
)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One document: its data, and where each field stands."""

    origin: str
    line: int
    data: Any
    nodes: dict[Location, yaml.Node] = field(repr=False)

    def place(self, location: Location) -> str:
        """`dataset.yaml:12: spec.sources[0].uri`; a field that is missing has the line of what it is missing from."""
        near = location
        while near and near not in self.nodes:
            near = near[:-1]
        line = self.nodes[near].start_mark.line + 1 if near else self.line
        path = field_path(location)
        return f"{self.origin}:{line}: {path}" if path else f"{self.origin}:{line}"

    def written(self, location: Location) -> str | None:
        node = self.nodes.get(location)
        return node.value if isinstance(node, yaml.ScalarNode) else None


def parse_yaml(text: str, origin: str) -> Iterator[YamlDocument]:
    """The documents of `text` that are not empty. Raises StokerError InvalidYaml with the line."""
    if len(text) > MAX_BYTES:
        raise _invalid(origin, f"it is longer than {MAX_BYTES} characters", "Give a file of Stoker documents.")
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is None or _is_empty(node):
                continue
            reader = _Reader(origin, loader)
            data = reader.value(node, ())
            yield YamlDocument(origin, node.start_mark.line + 1, data, reader.nodes)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{origin}:{mark.line + 1}" if mark else origin
        raise _invalid(place, error.problem or str(error), _CHECK) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise _invalid(f"{origin}:{line}", f"the character {error.character!r} is not allowed", _CHECK) from None
    except RecursionError:
        raise _invalid(origin, "it is nested too deep", _CHECK) from None


_CHECK = "Correct the YAML; indentation is by spaces, and `: ` or ` #` inside a text need quotes."


def _invalid(place: str, message: str, next_step: str) -> StokerError:
    return StokerError(Reason.InvalidYaml, message, place=place, next_step=next_step)


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


class _Reader:
    """Makes plain data of one document's nodes and keeps the node of each field."""

    def __init__(self, origin: str, loader: _Loader) -> None:
        self.nodes: dict[Location, yaml.Node] = {}
        self._origin = origin
        self._loader = loader
        self._values = 0

    def value(self, node: yaml.Node, location: Location) -> Any:
        self._values += 1
        if self._values > MAX_VALUES or len(location) > MAX_DEPTH:
            raise self._refused(node, "it holds too many values, or is nested too deep")
        self.nodes.setdefault(location, node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*location, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        own = {key.value for key, _ in node.value}
        self._merge(node, own)
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._refused(key_node, "a key is not a plain word")
            key = key_node.value
            if key in data:
                raise self._refused(key_node, f"the key {key!r} stands twice")
            data[key] = self.value(value_node, (*location, key))
            # The line of a field is the line of its key, where people look; of a scalar, its own text is kept too.
            if not isinstance(value_node, yaml.ScalarNode):
                self.nodes[(*location, key)] = key_node
        return data

    def _merge(self, node: yaml.MappingNode, own: set[str]) -> None:
        """Anchors merged by `<<` give way to the mapping's own keys."""
        if not any(key.tag.endswith(":merge") for key, _ in node.value):
            return
        explicit = [pair for pair in node.value if not pair[0].tag.endswith(":merge")]
        self._loader.flatten_mapping(node)
        merged = {key.value: (key, value) for key, value in node.value if key.value not in own}
        node.value = [*explicit, *merged.values()]

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return self._loader.construct_object(node)
        except yaml.constructor.ConstructorError:
            raise self._refused(node, f"the tag {node.tag} is not known") from None
        except ValueError:
            raise self._refused(node, f"{node.value!r} is not a value") from None

    def _refused(self, node: yaml.Node, message: str) -> StokerError:
        return _invalid(f"{self._origin}:{node.start_mark.line + 1}", message, _CHECK)
