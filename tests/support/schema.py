"""Checks JSON against tests/fs/schemas.json, by the part of JSON Schema that is used there."""

import json
import re
from pathlib import Path

DEFINITIONS = json.loads((Path(__file__).resolve().parents[1] / "fs/schemas.json").read_text())["$defs"]
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}


def is_type(value, name):
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def one_type(value, names):
    return any(is_type(value, name) for name in ([names] if isinstance(names, str) else names))


def same(value, constant):
    return value == constant and type(value) is type(constant)


# Each: whether the value passes. None: what it says is said by mismatch itself.
KEYWORDS = {
    "type": one_type,
    "const": same,
    "enum": lambda value, values: any(same(value, v) for v in values),
    "pattern": lambda value, pattern: not isinstance(value, str) or re.search(pattern, value),
    "minimum": lambda value, least: not is_type(value, "number") or value >= least,
    "minItems": lambda value, least: not isinstance(value, list) or len(value) >= least,
    "minProperties": lambda value, least: not isinstance(value, dict) or len(value) >= least,
    "required": lambda value, names: not isinstance(value, dict) or set(names) <= value.keys(),
    "properties": None, "additionalProperties": None, "items": None, "anyOf": None, "allOf": None, "$ref": None,
}


def _parts(value, schema, where):
    """What else must hold: (value, schema, where)."""
    if "$ref" in schema:
        yield value, DEFINITIONS[schema["$ref"].removeprefix("#/$defs/")], where
    for one in schema.get("allOf", []):
        yield value, one, where
    if isinstance(value, list) and "items" in schema:
        yield from ((v, schema["items"], f"{where}[{i}]") for i, v in enumerate(value))
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for key, v in value.items():
            if key in known:
                yield v, known[key], f"{where}.{key}"
            elif "additionalProperties" in schema:
                yield v, schema["additionalProperties"], f"{where}.{key}"


def mismatch(value, schema, where="answer"):
    """What of a JSON value is not as the schema (or the definition of this name) says; None when all is."""
    if isinstance(schema, str):
        schema = DEFINITIONS[schema]
    for keyword, argument in schema.items():
        if keyword not in KEYWORDS:
            raise ValueError(f"{where}: nobody here knows {keyword}")
        if KEYWORDS[keyword] and not KEYWORDS[keyword](value, argument):
            return f"{where}: {value!r} is not as {keyword} says: {argument}"
    if "anyOf" in schema and all(mismatch(value, one, where) for one in schema["anyOf"]):
        return f"{where}: {value!r} is none of {schema['anyOf']}"
    return next(filter(None, (mismatch(*part) for part in _parts(value, schema, where))), None)
