# Verify the project in this folder: verify.sh ORDER. As long as its contract cannot be met it is compiled; then it is
# verified by its own script, or, if it has none, compiled and tested.
set -eu
# The tree is read-only: what is compiled goes below TMPDIR, also by the project's own script.
python() {
  case "$*" in
    *compileall*) PYTHONPYCACHEPREFIX="$TMPDIR/pycache" command python "$@" ;;
    *) command python "$@" ;;
  esac
}
export -f python
exempt=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["verify_exempt"])' "$1") || {
  echo "verify.sh: the order $1 cannot be read" >&2
  exit 2
}
if [ "$exempt" = True ]; then
  python -m compileall -q .
elif [ -f scripts/verify.sh ]; then
  bash scripts/verify.sh
else
  python -m compileall -q .
  python -m pip --version
  python -m pytest -q
fi
