#!/bin/sh
# Builds the wheel and installs it with its locked dependencies into /opt/breaker-sidecar, the one
# folder that the image adds to its base. The Dockerfile runs this, and so does the test that
# starts the daemon from such a tree without a container engine.
#
#   container/install.sh SOURCE
#
# The same source and SOURCE_DATE_EPOCH give the same bytes and times.
set -eu
cd "$1"
: "${SOURCE_DATE_EPOCH:?the time that every file gets, in seconds since 1970}"
export SOURCE_DATE_EPOCH PYTHONHASHSEED=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
python=/usr/bin/python3
target=/opt/breaker-sidecar
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/build"
"$python" -m venv --without-pip "$target"
pip() { "$work/build/bin/python" -m pip --quiet "$@"; }

pip install --require-hashes --only-binary :all: --requirement container/build-requirements.txt
# Compiled, which needs the types of what it is compiled against.
pip install --require-hashes --only-binary :all: --requirement container/requirements.txt
export HATCH_BUILD_HOOK_ENABLE_CUSTOM=true
pip wheel --no-deps --no-build-isolation --wheel-dir "$work" .
pip --python "$target/bin/python" install --no-compile --require-hashes --only-binary :all: \
  --requirement container/requirements.txt
pip --python "$target/bin/python" install --no-compile --no-deps --no-index \
  --find-links "$work" breaker-sidecar

packages=$target/lib/$(ls "$target/lib")/site-packages
# The commands of other packages are nothing that the image offers.
find "$target/bin" -type f ! -name breaker-sidecar -delete
# Wheels come with symbols for debuggers, half of their size.
find "$target" -name '*.so*' -type f -exec strip --strip-unneeded {} +
# A read-only root keeps no byte code, so it is made here, and never compared with a time again.
"$target/bin/python" -m compileall -q -j 1 --invalidation-mode unchecked-hash "$packages"
find "$target" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
