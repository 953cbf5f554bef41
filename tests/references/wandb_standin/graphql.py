"""Answers GraphQL without a schema: walks the query over plain dictionaries.

Clients of different ages name fragments, aliases and arguments differently; what they select is found by field name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphql import language, parse, value_from_ast_untyped

Node = Mapping[str, Any]  # field name -> value, or a function that gives it for the dictionary of the field's arguments


class AnswerError(Exception):
    """The server refuses an operation; the message goes into the answer's ``errors``."""


def operation_name(query: str) -> str:
    """Return the name of the query's only operation, or "" when it has none."""
    for definition in parse(query, no_location=True).definitions:
        if isinstance(definition, language.OperationDefinitionNode) and definition.name:
            return definition.name.value
    return ""


def execute(query: str, variables: Mapping[str, Any], root: Node) -> dict[str, Any]:
    """Return the ``data`` that ``query`` selects from ``root``; a field that is not there is null.

    Raises:
        AnswerError: a function in the tree refused.
    """
    document = parse(query, no_location=True)
    fragments: dict[str, language.SelectionSetNode] = {}
    operation: language.OperationDefinitionNode | None = None
    for definition in document.definitions:
        if isinstance(definition, language.FragmentDefinitionNode):
            fragments[definition.name.value] = definition.selection_set
        elif isinstance(definition, language.OperationDefinitionNode):
            operation = definition
    if operation is None:
        raise AnswerError("the document holds no operation")
    defaults = {
        definition.variable.name.value: value_from_ast_untyped(definition.default_value)
        for definition in operation.variable_definitions or ()
        if definition.default_value is not None
    }
    return _Walk(fragments, {**defaults, **variables}).select(operation.selection_set, root)


class _Walk:
    """One execution: the fragments and variables that every level needs."""

    def __init__(self, fragments: Mapping[str, language.SelectionSetNode], variables: Mapping[str, Any]) -> None:
        self._fragments = fragments
        self._variables = dict(variables)

    def select(self, selection_set: language.SelectionSetNode, node: Node) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for selection in selection_set.selections:
            if not self._included(selection):
                continue
            if isinstance(selection, language.FieldNode):
                name = selection.name.value
                key = selection.alias.value if selection.alias else name
                answer[key] = self._value(selection, node.get(name))
            elif isinstance(selection, language.InlineFragmentNode):
                answer |= self.select(selection.selection_set, node)
            elif isinstance(selection, language.FragmentSpreadNode):
                answer |= self.select(self._fragments[selection.name.value], node)
        return answer

    def _value(self, field: language.FieldNode, value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        if isinstance(value, Callable):  # type: ignore[arg-type] # typing's Callable is fine for isinstance
            arguments = {a.name.value: value_from_ast_untyped(a.value, self._variables) for a in field.arguments or ()}
            value = value(arguments)
        return self._render(field, value)

    def _render(self, field: language.FieldNode, value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        if field.selection_set is None or value is None:
            return value
        if isinstance(value, Sequence):
            return [self._render(field, item) for item in value]
        return self.select(field.selection_set, value)

    def _included(self, selection: language.SelectionNode) -> bool:
        for directive in selection.directives or ():
            for argument in directive.arguments or ():
                condition = bool(value_from_ast_untyped(argument.value, self._variables))
                if condition == (directive.name.value == "skip"):
                    return False
        return True
