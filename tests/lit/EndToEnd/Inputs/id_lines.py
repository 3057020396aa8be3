"""Writes lines of token ids, for the commands that read them."""
import os


def write(folder, name, lines):
    """Returns the path of the file."""
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.writelines(" ".join(map(str, line)) + "\n" for line in lines)
    return path
