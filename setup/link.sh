#!/bin/sh
# Put a launcher named twinboot into a folder of the PATH: a link to this checkout's lab.py.
# Nothing is installed; the checkout stays where it is.
# usage: link.sh [FOLDER]    ~/.local/bin by default
set -eu

CHECKOUT=$(cd "$(dirname "$0")/.." && pwd -P)
FOLDER=${1:-$HOME/.local/bin}
LAUNCHER=$FOLDER/twinboot

# Somebody else's program is not replaced; a link to another checkout of the lab is.
if [ -e "$LAUNCHER" ] || [ -L "$LAUNCHER" ]; then
    case $(readlink "$LAUNCHER" || true) in
    */lab.py) ;;
    *)
        echo "link: $LAUNCHER: is no launcher of this lab's" >&2
        echo "next: remove it, or make link BIN=FOLDER" >&2
        exit 2
        ;;
    esac
fi
mkdir -p "$FOLDER" || exit 3
ln -sfn "$CHECKOUT/lab.py" "$LAUNCHER" || exit 3
echo "link: $LAUNCHER -> $CHECKOUT/lab.py" >&2
case :$PATH: in
*:"$FOLDER":*) ;;
*)
    echo "link: $FOLDER is not on your PATH" >&2
    echo "next: export PATH=\"$FOLDER:\$PATH\"" >&2
    ;;
esac
