"""The job of the two scripts with Transformers: a tiny Llama."""

from pydoc_data.topics import topics

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT, BATCH, STEPS, RATE = 32, 16, 30, 3e-3


class Prose(Dataset[dict[str, torch.Tensor]]):
    """Python's language reference, byte by byte, as a tokenizer
    gives it: mappings with the labels inside."""

    def __init__(self) -> None:
        text = "".join(topics[name] for name in sorted(topics))
        self.text = torch.frombuffer(
            bytearray(text.encode()), dtype=torch.uint8
        )

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        begin = index * CONTEXT
        tokens = self.text[begin : begin + CONTEXT].long()
        return {"input_ids": tokens, "labels": tokens}


def llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
