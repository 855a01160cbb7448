"""JSON Schema (draft 2020-12) for tests: the keywords that docs/schemas uses, without the package jsonschema. Where
that package is installed, both must agree."""
import json
import re

try:
    from jsonschema import Draft202012Validator
except ImportError:
    Draft202012Validator = None

NOTES = {"$schema", "$defs", "title", "description"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
         "number": (int, float)}


def is_a(value, name):
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def parts(schema, place):
    """The schema and all schemas in it, with their places."""
    yield place, schema
    inner = [(f"{place}.{name}", s) for key in ("properties", "$defs") for name, s in schema.get(key, {}).items()]
    for where, s in inner + [(place, s) for s in [schema.get("items")] + schema.get("oneOf", []) if s]:
        yield from parts(s, where)


class Schema:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.root = json.load(file)
        self.written = set()  # ids of the schemas of properties that valid values had
        self.peer = Draft202012Validator and Draft202012Validator(self.root)

    def find(self, value, schema, at="it"):
        """What is wrong with a value, as a list, and the ids of its properties."""
        wrong, found, inner = [], set(), []
        listed = schema.get("properties", {})
        for key, wanted in schema.items():
            ok = True
            if key == "$ref":
                inner += [(value, self.root["$defs"][wanted.removeprefix("#/$defs/")], at)]
            elif key == "oneOf":
                tried = sorted((self.find(value, s, at) for s in wanted), key=lambda result: len(result[0]))
                ok, found = len(tried[0][0]) == 0 < len(tried[1][0]), found | tried[0][1]
                wrong += tried[0][0]
            elif key == "type":
                ok = any(is_a(value, name) for name in (wanted if isinstance(wanted, list) else [wanted]))
            elif key in ("enum", "const"):
                ok = any(type(value) is type(w) and value == w for w in (wanted if key == "enum" else [wanted]))
            elif key in ("minimum", "maximum"):
                ok = not is_a(value, "number") or (value >= wanted if key == "minimum" else value <= wanted)
            elif key == "pattern":
                ok = not is_a(value, "string") or re.search(wanted, value)
            elif key == "items":
                inner += [(v, wanted, f"{at}[{i}]") for i, v in enumerate(value)] if is_a(value, "array") else []
            elif key in ("required", "properties", "additionalProperties"):
                members = value if is_a(value, "object") else {}
                missing = sorted(set(wanted) - set(members)) if key == "required" and value is members else []
                wrong += [f"{at} lacks {name}" for name in missing]
                for name in members if key == "properties" else ():
                    inner += [(members[name], wanted[name], f"{at}.{name}")] if name in wanted else []
                    found |= {id(wanted[name])} if name in wanted else set()
                for name in sorted(set(members) - set(listed)) if key == "additionalProperties" else ():
                    wrong += [] if wanted else [f"{at}.{name} is not documented"]
                    inner += [(members[name], wanted, f"{at}.{name}")] if wanted else []
            elif key not in NOTES:
                raise ValueError(f"tests/json_schema.py does not know the keyword {key}")
            wrong += [] if ok else [f"{at}: {key} {json.dumps(wanted)[:100]}, got {json.dumps(value)[:200]}"]
        for part in inner:
            more, of_part = self.find(*part)
            wrong, found = wrong + more, found | of_part
        return wrong, found

    def wrong(self, value):
        """What is wrong with a value, as a list."""
        wrong, found = self.find(value, self.root)
        if self.peer and self.peer.is_valid(value) == bool(wrong):
            return [f"jsonschema disagrees: {wrong or 'valid'}: {json.dumps(value)[:300]}"]
        self.written |= found if not wrong else set()
        return wrong

    def faults(self):
        """What is wrong with the schema itself, after all values were checked: a property that no value had, an object
        that allows properties that are not listed, and a property without a description."""
        for place, schema in parts(self.root, "it"):
            if "properties" in schema and schema.get("additionalProperties") is not False:
                yield f"{place} allows other properties"
            for name, p in schema.get("properties", {}).items():
                described = self.root["$defs"][p["$ref"].removeprefix("#/$defs/")] if "$ref" in p else p
                if id(p) not in self.written:
                    yield f"{place}.{name} is not written"
                if "description" not in described:
                    yield f"{place}.{name} has no description"
