#!/usr/bin/env python3
"""Makes English-French sentence pairs from the translations that Debian itself ships.

The packages libreoffice-l10n-fr (user-interface strings) and iso-codes (names of languages, countries, regions and
currencies) are downloaded, not installed; their gettext catalogues are read with Python's own gettext. Accelerator
marks (~ _ &) are removed. A pair is dropped if its sides are equal, if it is a repetition, if it contains markup or
placeholders, or if it is too short or too long. The split is fixed: it depends only on a hash of the lower-cased English
side, so no source occurs in two parts.

Usage: pairs.py FOLDER     writes FOLDER/{train,valid,test}.{en,fr} and FOLDER/SOURCES.txt
"""
import gettext
import hashlib
import os
import re
import subprocess
import sys
import unicodedata

PACKAGES = ["libreoffice-l10n-fr", "iso-codes"]
HELD_OUT = 0.035  # share of the sources held out for valid, and again for test


def clean(text):
    text = unicodedata.normalize("NFC", text)
    text = re.sub(r"\(~?[A-Z0-9]\)$", "", text)  # accelerators in brackets
    text = re.sub(r"[~]|_(?=\w)|&(?=\w)", "", text)
    text = text.replace("\u00a0", " ").replace("\u202f", " ").replace("\u2019", "'")
    return re.sub(r"\s+", " ", text).strip()


def usable(english, french):
    letters = sum(c.isalpha() for c in english)
    if english == french or letters < 2 or len(english) > 300 or len(french) > 300:
        return False
    return not re.search(r"[<>{}|\\]|%\w|\$\(|https?:", english + french)


def catalogues(folder):
    for root, _, files in sorted(os.walk(folder)):
        if "/fr/" in root + "/":
            for name in sorted(files):
                if name.endswith(".mo"):
                    yield os.path.join(root, name)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = sys.argv[1]
    packages = os.path.join(out, "packages")
    tree = os.path.join(packages, "tree")
    os.makedirs(tree, exist_ok=True)
    versions = []
    for package in PACKAGES:
        if not any(name.startswith(package + "_") for name in os.listdir(packages)):
            subprocess.run(["apt-get", "-qq", "download", package], cwd=packages, check=True, stderr=subprocess.DEVNULL)
        archive = next(name for name in sorted(os.listdir(packages)) if name.startswith(package + "_"))
        subprocess.run(["dpkg", "-x", os.path.join(packages, archive), tree], check=True)
        versions.append(archive)

    pairs = {}
    for file in catalogues(tree):
        with open(file, "rb") as stream:
            catalogue = gettext.GNUTranslations(stream)._catalog
        for key, value in catalogue.items():
            if not isinstance(key, str) or not key or not value:
                continue  # plural forms and the header
            english = clean(key.split("\x04")[-1])  # the context precedes the separator
            french = clean(value)
            if usable(english, french):
                pairs.setdefault((english, french))

    parts = {"train": [], "valid": [], "test": []}
    for english, french in pairs:
        digest = hashlib.sha256(english.lower().encode()).digest()
        place = int.from_bytes(digest[:8], "big") / 2**64
        part = "test" if place < HELD_OUT else "valid" if place < 2 * HELD_OUT else "train"
        parts[part].append((digest, english, french))
    for part, rows in parts.items():
        rows.sort()  # by hash: shuffled, but in the same order on every machine
        if part != "train":  # one reference per source
            seen = set()
            rows = [row for row in rows if not (row[0] in seen or seen.add(row[0]))]
        for side, column in (("en", 1), ("fr", 2)):
            with open(os.path.join(out, f"{part}.{side}"), "w", encoding="utf-8") as stream:
                stream.writelines(row[column] + "\n" for row in rows)
        print(f"{part}: {len(rows)} pairs")
    with open(os.path.join(out, "SOURCES.txt"), "w", encoding="utf-8") as stream:
        stream.write("Made from these Debian packages; their licences are in usr/share/doc of each:\n")
        stream.writelines(version + "\n" for version in versions)


if __name__ == "__main__":
    main()
