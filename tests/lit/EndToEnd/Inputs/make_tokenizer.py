"""Prints a tokenizer.json for the characters of text files (ASCII), with <s> and </s> around a line.

    make_tokenizer.py FILE...
"""
import json
import sys

characters = sorted({character for file in sys.argv[1:] for character in open(file, encoding="ascii").read().replace(" ", "\u0120")} - {"\n"})
special = ["<pad>", "<unk>", "<s>", "</s>"]
print(json.dumps({
    "added_tokens": [{"id": i, "content": token, "special": True} for i, token in enumerate(special)],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
    "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
    "post_processor": {"type": "RobertaProcessing", "cls": ["<s>", 2], "sep": ["</s>", 3], "trim_offsets": True, "add_prefix_space": False},
    "model": {"type": "BPE", "unk_token": "<unk>", "merges": [], "vocab": {token: i for i, token in enumerate(special + characters)}},
}))
