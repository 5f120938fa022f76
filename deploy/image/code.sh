#!/bin/sh
# Writes what the code adds to the environment that packages.sh has made: code.sh TREE TARGET FOLDER
#
# The files are in FOLDER/TARGET, to be copied over TARGET, so they are a small layer of the image. No index is asked.
set -eu
tree=$1 target=$2 folder=$3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$target-build/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation \
    --wheel-dir "$work" "$tree"
"$target-build/bin/python" -m pip --python "$target/bin/python" --quiet --disable-pip-version-check install \
    --no-index --no-deps --no-warn-script-location --root "$folder" "$work"/lakefold-*.whl
