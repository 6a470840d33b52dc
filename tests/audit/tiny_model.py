"""Writes a model of a few hundred kilobytes with random weights: a llama.cpp server takes it.

It answers nonsense, and that is enough: an audit asks what a server says of requests that cannot
succeed. Needs the packages gguf and numpy: `python tiny_model.py FILE`.
"""

# ruff: noqa: T201 - run by a server's own environment, not imported by the tests

import sys
from typing import Any

WIDTH, HEADS, LAYERS, INNER, CONTEXT = 64, 4, 2, 128, 256


def write(file: str) -> None:
    """Write the model."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_file_type(0)
    # Three marks, a token for each byte, and a few letters: the least that its tokenizer takes.
    letters = [bytes([letter]) for letter in range(97, 123)] + ["▁".encode()]
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256)), *letters]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(letters))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    writer.add_vocab_size(len(tokens))
    random = np.random.default_rng(1)

    def weights(*shape: int) -> Any:
        return (random.standard_normal(shape) * 0.02).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    writer.add_tensor("token_embd.weight", weights(len(tokens), WIDTH))
    writer.add_tensor("output.weight", weights(len(tokens), WIDTH))
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"{block}.{name}.weight", weights(WIDTH, WIDTH))
        writer.add_tensor(f"{block}.ffn_gate.weight", weights(INNER, WIDTH))
        writer.add_tensor(f"{block}.ffn_up.weight", weights(INNER, WIDTH))
        writer.add_tensor(f"{block}.ffn_down.weight", weights(WIDTH, INNER))
        writer.add_tensor(f"{block}.attn_norm.weight", ones)
        writer.add_tensor(f"{block}.ffn_norm.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(sys.argv[1])
    print(sys.argv[1])
