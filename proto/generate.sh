#!/usr/bin/env bash
# Generates the typed protobuf modules of wakupush/pb from the .proto sources.
# Usage: proto/generate.sh [OUTPUT_ROOT]   (default: the repository's root)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root}
bin=${VIRTUAL_ENV:-$root/.venv}/bin
PATH="$bin:$PATH" protoc --proto_path="$root/proto" --python_out="$out" --mypy_out="$out" "$root"/proto/wakupush/pb/*.proto
