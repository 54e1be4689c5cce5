"""Compares our P4Runtime and gNMI protobufs with the descriptors inside the published packages.

Every message, field, oneof, enum and service becomes one line per fact; any line that only one
side has is printed, and the exit status is 1. It installs nothing. To run it:

    python3 -m venv VENV && VENV/bin/pip install -r scripts/check-protos.requirements.txt
    VENV/bin/python scripts/check-protos.py
"""

import importlib
import subprocess
import sys

from google.protobuf import descriptor_pb2

PUBLISHED = {
    "google/rpc/status.proto": "google.rpc.status_pb2",
    "p4/config/v1/p4info.proto": "p4.config.v1.p4info_pb2",
    "p4/config/v1/p4types.proto": "p4.config.v1.p4types_pb2",
    "p4/v1/p4data.proto": "p4.v1.p4data_pb2",
    "p4/v1/p4runtime.proto": "p4.v1.p4runtime_pb2",
    "gnmi_ext.proto": "pygnmi.spec.v080.gnmi_ext_pb2",
    "gnmi.proto": "pygnmi.spec.v080.gnmi_pb2",
}
EXAMPLE = ["cargo", "run", "--quiet", "-p", "p4runtime-proto", "--example", "descriptors"]

FIELD = descriptor_pb2.FieldDescriptorProto


def published():
    for name, module in PUBLISHED.items():
        file = descriptor_pb2.FileDescriptorProto()
        importlib.import_module(module).DESCRIPTOR.CopyToProto(file)
        yield name, file


def ours():
    output = subprocess.run(EXAMPLE, check=True, stdout=subprocess.PIPE).stdout
    files = descriptor_pb2.FileDescriptorSet.FromString(output).file
    return ((file.name, file) for file in files if file.name in PUBLISHED)


def facts(name, file):
    yield f"{name}: package {file.package}, syntax {file.syntax or 'proto2'}"
    yield from (f"{name}: import {path}" for path in file.dependency)
    for enum in file.enum_type:
        yield from enum_facts(file.package, enum)
    for message in file.message_type:
        yield from message_facts(file.package, message)
    for service in file.service:
        yield from service_facts(file.package, service)


def enum_facts(scope, enum):
    path = f"{scope}.{enum.name}"
    yield f"enum {path}, allow_alias {enum.options.allow_alias}"
    yield from (f"value {path}.{value.name} = {value.number}" for value in enum.value)


def message_facts(scope, message):
    path = f"{scope}.{message.name}"
    yield f"message {path}, map entry {message.options.map_entry}"
    yield from (f"oneof {path}.{oneof.name}" for oneof in message.oneof_decl)
    yield from (field_fact(path, message, field) for field in message.field)
    for enum in message.enum_type:
        yield from enum_facts(path, enum)
    for nested in message.nested_type:
        yield from message_facts(path, nested)


def field_fact(path, message, field):
    label = FIELD.Label.Name(field.label).removeprefix("LABEL_").lower()
    kind = field.type_name or FIELD.Type.Name(field.type).removeprefix("TYPE_").lower()
    inside = field.HasField("oneof_index")
    oneof = message.oneof_decl[field.oneof_index].name if inside else "none"
    return (
        f"field {path}.{field.name} = {field.number}: {label} {kind}, oneof {oneof}, "
        f"packed {packed(field)}, explicit presence {field.proto3_optional}, "
        f"deprecated {field.options.deprecated}"
    )


def packed(field):
    return field.options.packed if field.options.HasField("packed") else "default"


def service_facts(scope, service):
    path = f"{scope}.{service.name}"
    yield f"service {path}"
    for method in service.method:
        yield (
            f"method {path}.{method.name}: "
            f"{method.input_type}, stream {method.client_streaming} -> "
            f"{method.output_type}, stream {method.server_streaming}"
        )


def all_facts(files):
    return {fact for name, file in files for fact in facts(name, file)}


def main():
    theirs, mine = all_facts(published()), all_facts(ours())
    for fact in sorted(theirs - mine):
        print(f"only published: {fact}")
    for fact in sorted(mine - theirs):
        print(f"only here: {fact}")
    if theirs != mine:
        return 1
    print(f"{len(mine)} facts of {len(PUBLISHED)} files agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
