"""The MLP with TensorFlow: `TF_CONFIG=… python with_tensorflow.py`, once for each worker.

The loop is written out: Keras 3's `fit` fails under this strategy ("unsupported type PerReplica").
"""

from typing import Any

import keras
import tensorflow as tf

from benchmarks.frameworks.jobs import mlp
from benchmarks.frameworks.jobs.meter import Meter


def network() -> Any:
    inputs, *hidden, classes = mlp.WIDTHS
    layers = [keras.layers.Dense(width, activation="relu") for width in hidden]
    model = keras.Sequential([keras.Input((inputs,)), *layers, keras.layers.Dense(classes)])
    for layer, weights in zip(model.layers, mlp.first_weights(), strict=True):
        layer.kernel.assign(weights)
    return model


def main() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = network()
        update = keras.optimizers.SGD(mlp.LEARNING_RATE, momentum=mlp.MOMENTUM)
        update.build(model.trainable_variables)
    data = tf.data.Dataset.from_tensor_slices(mlp.samples()).batch(mlp.BATCH)
    loader = strategy.experimental_distribute_dataset(data)

    def learn(inputs: Any, label: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = keras.losses.sparse_categorical_crossentropy(label, model(inputs), True)
            mean = tf.nn.compute_average_loss(loss, global_batch_size=mlp.BATCH)
        update.apply(tape.gradient(mean, model.trainable_variables))
        return mean

    step = tf.function(lambda batch: strategy.run(learn, args=batch))
    meter = Meter()
    for batch in loader:
        loss = step(batch)
        meter.step(mlp.WORKERS * float(loss))
    meter.end()


if __name__ == "__main__":
    main()
