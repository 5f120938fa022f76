#!/bin/sh
# Installs the packages that the committer needs into a virtual environment: packages.sh TREE TARGET [with-pylance]
#
# Of the source tree it needs pyproject.toml, requirements.lock and this folder, so a change of the code leaves the
# layer of the packages as it is; `code.sh` adds the code. The Dockerfile runs both, and so does
# tests/integration/test_image.py in an empty environment. So the content of the image is tested wherever the tests
# run, although no image is built there.
set -eu
tree=$1 target=$2 pylance=${3:-without-pylance}
python=${PYTHON:-python3}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What builds the wheel of the code comes from the lock too. The pip of this other environment installs, so that there
# is none in the image.
if ! test -d "$target-build"; then
    "$python" -m venv "$target-build"
    { printf '[project]\nname = "backend"\ndependencies = ["hatchling"]\n[project.optional-dependencies]\nbuild = []\n'
    } > "$work/backend.toml"
    "$python" "$tree/deploy/image/pins.py" build --project "$work/backend.toml" \
        < "$tree/requirements.lock" > "$work/backend.txt"
    "$target-build/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        --only-binary :all: -r "$work/backend.txt"
    "$python" -m venv --without-pip "$target"
fi

# pylance writes fragments and reads rows; the committer does neither and never loads it (an import contract says
# so). It would be two fifths of the image. A maintainer needs it. What exports traces is there: a variable switches
# it on.
set -- committer otel s3 objects
test "$pylance" = without-pylance || set -- "$@" lance
"$python" "$tree/deploy/image/pins.py" "$@" --project "$tree/pyproject.toml" < "$tree/requirements.lock" > "$work/pins.txt"
"$target-build/bin/python" -m pip --python "$target/bin/python" --quiet --disable-pip-version-check install \
    --require-hashes --only-binary :all: -r "$work/pins.txt"

# Nothing is compiled or linked in the image: headers and static libraries stay behind.
site=$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf "$site/pyarrow/include" "$site/pyarrow/src" "$site/pyarrow/tests" "$site/numpy/_core/include"
