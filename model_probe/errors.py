"""The one exception of `model_probe`: a code, the facts, and a sentence.

The command line prints the English sentence. The app looks the code up in its own texts
(`pages/text/*/errors.toml`, held to the same codes by a test), so that the reader is told in the
page's language what to do there.
"""

from __future__ import annotations

SENTENCES: dict[str, str] = {
    # opening a checkpoint
    "not_found": "There is no file or folder at {path}.",
    "unreadable": "{path} cannot be read ({reason}).",
    "no_config": "{path} is not a checkpoint: it has no config.json.",
    "no_tokenizer": "{path} has no tokenizer files, so a prompt cannot be turned into tokens.",
    "no_weights": "{path} has no safetensors weights; pickled weights are not opened.",
    "adapter_only": "{path} holds an adapter only; open the base checkpoint, or merge the adapter into it first.",
    "bad_gguf": "{path} is not a whole GGUF file ({reason}).",
    "gguf_architecture": "{path} is a GGUF file of the architecture {architecture!r}, which transformers cannot convert.",
    "gguf_norm_differs": "transformers reads the norm {name} otherwise than {path} stores it (off by {off} of its largest gain), so every number would be wrong; a safetensors version may be right.",
    "gguf_norm_lost": "{path} stores the norm {name}, which transformers leaves out of the model, so every number would be wrong; a safetensors version may be right.",
    "unknown_architecture": "{path} is of the architecture {architecture!r}, which this version of transformers does not know.",
    "not_causal": "{path} is of the architecture {architecture!r}, which is not a causal language model.",
    "pass_failed": "{architecture} cannot be run on token ids alone ({reason}), so its norms cannot be found.",
    "no_rms_norm": "{architecture} has no RMSNorm (its norms: {classes}), so there is nothing to measure here.",
    "fused_norm": "{name} ({class_name}) adds the residual and norms in one step, so what it norms cannot be seen; load the model without fused kernels.",
    "bypassed_norm": "{name} ({class_name}) takes part in the pass but never runs as a module, so what it norms cannot be seen; load the model without fused kernels.",
    "in_place_norm": "{name} ({class_name}) writes its result over what it norms, so that cannot be seen; load the model without fused kernels.",
    "norm_not_measured": "{name} ({class_name}) acts as an RMSNorm, but it cannot be run by itself to measure its gain ({reason}); load the model without custom kernels.",
    "not_wrapped": "A {class_name} is not a language model of transformers, so its norms cannot be measured here.",
    "weights_gone": "The weights of {architecture} are not in memory: the model was closed, or never loaded. Open it again.",
    "missing_weights": "{path} lacks the weights {names}, so they would be random numbers.",
    "load_failed": "{path} could not be opened ({reason}).",
    "no_checkpoint": "No checkpoint is on this machine yet; `python -m model_probe fetch` gets one.",
    "unknown_device": "The device {device!r} is not available here; there is {available}.",
    "unknown_dtype": "The dtype {dtype!r} is not one of auto, float32, bfloat16, float16.",
    "too_little_memory": "{path} needs {needed} of memory in {dtype}, and {free} are free on the device {device}; close something, take a smaller dtype (--dtype bfloat16) or a smaller checkpoint.",
    # fetching
    "unknown_name": "{name!r} is not a known checkpoint, a folder, a GGUF file or a hub id.",
    "fetch_failed": "{name} could not be fetched: {reasons}",
    "gated": "{name} is gated: accept its terms at {address}, then set HF_TOKEN to a token of that account.",
    "checksum": "{name} arrived with a different sha256 than published, and was thrown away.",
    "disk_full": "The disk is full: {needed} are needed in {path}.",
    "cache_unwritable": "The cache folder {path} cannot be written ({reason}).",
    # capturing
    "empty_prompt": "The prompt is empty: type at least one character.",
    "bad_prompt": "The prompt cannot be read as UTF-8 text ({reason}).",
    "busy": "Another measurement is running on this checkpoint.",
    "no_sites_ran": "None of the norms ran during the pass, so there is nothing to show.",
    # on a server
    "bad_setting": "The setting {name} is {value!r}, but has to be {allowed}.",
    "queue_full": "{n} people are waiting for their turn already; try again in a few minutes.",
    "own_work": "You have {n} things at work or waiting already; wait for one of them or stop it.",
    "too_slow": "The run was stopped: it took longer than the {seconds} seconds that this server allows.",
    "switched_off": "This is switched off on this server.",
    # the labs
    "stack_too_large": "{layers} layers of width {hidden_size} are too much for this laboratory; at that width it takes {most}.",
    # intervening
    "no_norm_chosen": "No norm of this checkpoint lies in those layers with those roles, so nothing would change.",
    "norm_runs_twice": "{name} runs more than once in a pass; choose all its calls or none.",
    "norm_not_rebuilt": "The output of {name} cannot be rebuilt from its input, so it can only be scaled.",
    "no_rms_given": "No RMS is known for {name}.",
    "no_such_layer": "There is no layer {layer} in this checkpoint.",
    "no_softmax": "Layer {layer} has no softmax attention, so it has no logits, values or biases to scale.",
    "soft_cap": "The attention logits of this checkpoint pass a soft cap before the softmax, so a factor is not what the softmax sees.",
    "no_value_projection": "Layer {layer} has no value projection of its own.",
    "no_bias": "Layer {layer} has no query, key or value bias.",
    "unknown_head": "The logits of {architecture} do not follow from its last hidden state, so what a change does to them cannot be read.",
    # files
    "not_a_trace": "{path} is not a trace of this program ({reason}).",
    "not_a_recording": "{path} is not a recording of this program ({reason}).",
    "not_outcomes": "{path} holds no outcomes of this program ({reason}).",
    "not_profiles": "{path} holds no profiles of this program ({reason}).",
    "not_runs": "{path} holds no runs of this program ({reason}).",
    "not_a_batch": "{path} holds no batch of this program ({reason}).",
    # batches
    "bad_prompts": "{path} cannot be read as a list of prompts: {reason}.",
    "other_batch": "{path} holds another batch: {reason}; choose another folder.",
    "batch_busy": "Another run is writing to {path}.",
    "unwritable": "{path} cannot be written ({reason}).",
    "not_spread": "The checkpoint cannot be spread: {reason}.",
    "no_ray": "Ray is not installed; `pip install -r requirements-ray.txt` installs it.",
    "ray_failed": "The Ray cluster at {address} cannot be used ({reason}).",
    "workers_lost": "The workers at {address} die one after the other ({reason}).",
    "worker_died": "{count} workers died while they ran this prompt, so it was given up.",
}


class ProbeError(Exception):
    """Something the person at the keyboard can understand and act on.

    Attributes:
        code: a key of `SENTENCES`.
        fields: the facts of this case, as named in the sentence.
    """

    def __init__(self, code: str, **fields: object) -> None:
        self.code = code
        self.fields = fields
        super().__init__(SENTENCES[code].format(**fields))
