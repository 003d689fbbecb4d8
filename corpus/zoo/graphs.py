"""Graph neural networks on sampled graphs: GCN and GAT. The batch is the number of nodes.

Messages travel along edges as a gather of source rows and a segment sum at targets. GCN: the ogbn-arxiv
form, three layers of 256 with batch norm, 128 features, 40 classes, about 14 edges per node. GAT: the form
for protein graphs, layers of 4 x 256, 4 x 256 and 6 x 121 heads, 50 features, 121 labels, about 29 edges
per node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.layers import (
    batch_norm,
    bias,
    binary_cross_entropy,
    cross_entropy,
    dense,
    dropout,
)

if TYPE_CHECKING:
    from jax import Array


def gcn(c: Ctx, features: int = 128, hidden: int = 256, classes: int = 40, degree: int = 14) -> Array:
    """H' = D^-1/2 A D^-1/2 H W, self-loops among the edges; the loss of labelled nodes."""
    import jax
    import jax.numpy as jnp

    nodes, edges = c.batch, degree * c.batch
    x, source, target = c.input(nodes, features), c.tokens(edges), c.tokens(edges)
    degrees = jax.ops.segment_sum(jnp.ones((edges,), "float32"), target, nodes)
    scale = jax.lax.rsqrt(jnp.maximum(degrees, 1.0)).astype(c.dtype)
    weight = (scale[source] * scale[target])[:, None]
    for layer, width in enumerate((hidden, hidden, classes)):
        x = dense(c, x, width, use_bias=False)
        x = bias(c, jax.ops.segment_sum(x[source] * weight, target, nodes))
        if layer < 2:
            x = dropout(c, jax.nn.relu(batch_norm(c, x)), 0.5)
    return cross_entropy(x, c.tokens(nodes)) if c.train else jax.nn.log_softmax(x.astype("float32"))


def _attention_layer(c: Ctx, x: Array, edges: tuple[Array, Array], heads: int, width: int) -> Array:
    """sum_j a_ij W h_j, a = softmax over i's edges of leaky_relu(u W h_i + v W h_j): [n, heads, width]."""
    import jax
    import jax.numpy as jnp

    source, target = edges
    nodes = x.shape[0]
    rows = jnp.einsum("nf,fhd->nhd", x, c.weight(x.shape[-1], heads, width))
    sent = jnp.einsum("nhd,hd->nh", rows, c.weight(heads, width))
    taken = jnp.einsum("nhd,hd->nh", rows, c.weight(heads, width))
    logits = jax.nn.leaky_relu(sent[source] + taken[target], 0.2).astype("float32")
    highest = jax.lax.stop_gradient(jax.ops.segment_max(logits, target, nodes))
    raised = jnp.exp(logits - highest[target])
    weights = raised / (jax.ops.segment_sum(raised, target, nodes)[target] + 1e-9)
    return jax.ops.segment_sum(rows[source] * weights.astype(c.dtype)[..., None], target, nodes)


def gat(c: Ctx, features: int = 50, labels: int = 121, degree: int = 29) -> Array:
    """Two layers of four heads side by side, a skip around the second, and six averaged heads per label."""
    import jax
    import jax.numpy as jnp

    nodes, edges = c.batch, degree * c.batch
    x = c.input(nodes, features)
    ends = (c.tokens(edges), c.tokens(edges))
    x = jax.nn.elu(bias(c, _attention_layer(c, x, ends, 4, 256).reshape(nodes, -1)))
    x = jax.nn.elu(bias(c, _attention_layer(c, x, ends, 4, 256).reshape(nodes, -1)) + x)
    logits = bias(c, jnp.mean(_attention_layer(c, x, ends, 6, labels), 1)).astype("float32")
    if not c.train:
        return jax.nn.sigmoid(logits)
    return jnp.mean(binary_cross_entropy(logits, c.input(nodes, labels, dtype="float32")))
