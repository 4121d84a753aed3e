"""Is a stream the same in two files: compare.py STREAM FILE FILE"""

import sys

import tensors


def main():
    name, first, second = sys.argv[1:]
    same = tensors.read(first)[name] == tensors.read(second)[name]
    print(f"{name}: {'EQUAL' if same else 'DIFFERENT'}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
