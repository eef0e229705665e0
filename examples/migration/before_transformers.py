"""`torchrun --standalone --nproc-per-node 2 before_transformers.py`."""

import torch
from text_task import BATCH, RATE, STEPS, Prose, llama
from transformers import Trainer, TrainingArguments

WORKERS, ACCUMULATE = 2, 2


def main() -> None:
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir="transformers-state",
        per_device_train_batch_size=BATCH // WORKERS // ACCUMULATE,
        gradient_accumulation_steps=ACCUMULATE,
        learning_rate=RATE,
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        max_steps=STEPS,
        save_steps=STEPS,
        logging_steps=1,
        train_sampling_strategy="sequential",
        use_cpu=True,
        report_to="none",
    )
    Trainer(model=llama(), args=arguments, train_dataset=Prose()).train()


if __name__ == "__main__":
    main()
