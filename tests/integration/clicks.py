"""Jobs on a click log, which is made as it is read: their job files."""

# The log's own probabilities have an AUC of 0.865; a linear model reaches 0.65.
LOG = """
  format: CLICK_LOG
  click_log {
    seed: 7 fields: 6 keys_per_field: 40 zipf_exponent: 0.5 dense_columns: 2
    rank: 2 bias: -0.5 linear_stddev: 1 interaction_stddev: 2
  }
"""
FACTORS = "factorization_machine { rank: 4 factor_std: 0.1 }"


def job(
    name="clicks",
    model=FACTORS,
    data=None,
    train=40000,
    test=5000,
    epochs=3,
    batch_size=200,
    training="",
    optimizer="adagrad {} learning_rate: 0.1",
    consistency="asp {}",
    workers=2,
    servers=2,
    resources="",
    rest="",
):
    """The text of a job file. `data` takes the place of the log, `rest` stands at the end."""
    if data is None:
        held_out = f"test {{ first_example: {train} examples: {test} }}" if test else ""
        data = f"{LOG} train {{ examples: {train} }} {held_out}"
    return f"""
name: "{name}"
model {{ sparse {{ {model} buckets: 16 }} }}
data {{ {data} }}
training {{ epochs: {epochs} batch_size: {batch_size} {training} }}
optimizer {{ {optimizer} }}
consistency {{ {consistency} }}
resources {{ workers: {workers} servers: {servers} {resources} }}
{rest}
"""
