#!/bin/sh
# Installs the committer from this source tree into a new virtual environment: install.sh TREE TARGET [with-pylance]
#
# The Dockerfile runs it, and so does tests/integration/test_image.py in an empty environment. So the content of the
# image is tested wherever the tests run, although no image is built there.
set -eu
tree=$1 target=$2 pylance=${3:-without-pylance}
python=${PYTHON:-python3}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The wheel first, by a build backend that comes from the lock too.
"$python" -m venv "$work/build"
{ printf '[project]\nname = "backend"\ndependencies = ["hatchling"]\n[project.optional-dependencies]\nbuild = []\n'
} > "$work/backend.toml"
"$python" "$tree/deploy/image/pins.py" build --project "$work/backend.toml" \
    < "$tree/requirements.lock" > "$work/backend.txt"
"$work/build/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
    -r "$work/backend.txt"
"$work/build/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir "$work" "$tree"

# pylance writes fragments and reads rows; the committer does neither and never loads it (an import contract says
# so). It would be two fifths of the image. A maintainer needs it. What exports traces is there: a variable switches
# it on.
set -- committer otel s3 objects --project "$tree/pyproject.toml"
test "$pylance" = with-pylance || set -- "$@" --without pylance
"$python" "$tree/deploy/image/pins.py" "$@" < "$tree/requirements.lock" > "$work/pins.txt"
# The other environment's pip installs, so that there is none in the image.
"$python" -m venv --without-pip "$target"
set -- "$work/build/bin/python" -m pip --python "$target/bin/python" --quiet --disable-pip-version-check install
"$@" --require-hashes --only-binary :all: -r "$work/pins.txt"
"$@" --no-deps "$work"/lakefold-*.whl

# Nothing is compiled or linked in the image: headers and static libraries stay behind.
site=$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf "$site/pyarrow/include" "$site/pyarrow/src" "$site/pyarrow/tests" "$site/numpy/_core/include"
