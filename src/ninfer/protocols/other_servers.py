"""Parameters that clients of other local servers send, and that this one does not have: refused by name (D10).

They were collected from what llama.cpp's server, vLLM, SGLang, TabbyAPI, Ollama, text-generation-webui and LM Studio
read beside OpenAI's names. Each has the values that ask for nothing, with which it passes; what only tunes another of
them (`mirostat_tau`, `dry_base`, `repeat_last_n`) or tells of the caller (`priority`, `keep_alive`) asks for nothing by
itself and is in no table. Shared by the protocols that ignore unknown fields; it knows none of their own names.
"""

from collections.abc import Mapping

from ninfer.protocols.refusal import CONSTRAINED_ELSEWHERE, Neutral, Refusals, never, nothing, one_of

_SAMPLERS: Mapping[str, Neutral] = {
    "adaptive_target": one_of(-1),
    "best_of": one_of(1),
    "cfg_scale": one_of(1),
    "custom_logit_processor": nothing,
    "do_sample": one_of(True),
    "dry_multiplier": one_of(0),
    "dynamic_temperature": one_of(False),
    "dynatemp_range": one_of(0),
    "epsilon_cutoff": one_of(0),
    "eta_cutoff": one_of(0),
    "guidance_scale": one_of(1),
    "logits_processors": nothing,
    "max_temp": one_of(1),
    "min_temp": one_of(1),
    "mirostat": one_of(0),
    "mirostat_mode": one_of(0),
    "negative_prompt": nothing,
    "num_beams": one_of(1),
    "penalty_alpha": one_of(0),
    "sampler_priority": nothing,
    "samplers": nothing,
    "skew": one_of(0),
    "smoothing_factor": one_of(0),
    "temperature_last": one_of(False),
    "tfs": one_of(1),
    "tfs_z": one_of(1),
    "top_a": one_of(0),
    "top_n_sigma": one_of(0, -1),
    "typical": one_of(1),
    "typical_p": one_of(1),
    "use_beam_search": one_of(False),
    "watermark": one_of(False),
    "xtc_probability": one_of(0),
}
_PENALTIES: Mapping[str, Neutral] = {
    "encoder_repetition_penalty": one_of(1),
    "length_penalty": one_of(1),
    "no_repeat_ngram_size": one_of(0),
    "repeat_penalty": one_of(1),
    "repetition_penalty": one_of(1),
}
_TOKENS: Mapping[str, Neutral] = {
    "allowed_token_ids": nothing,
    "allowed_tokens": nothing,
    "bad_words": nothing,
    "ban_eos_token": one_of(False),
    "banned_strings": nothing,
    "banned_tokens": nothing,
    "custom_token_bans": nothing,
    "ignore_eos": one_of(False),
    "include_stop_str_in_output": one_of(False),
    "min_length": one_of(0),
    "min_new_tokens": one_of(0),
    "min_tokens": one_of(0),
    "no_stop_trim": one_of(False),
    "stop_regex": nothing,
    "stop_token_ids": nothing,
    "token_healing": one_of(False),
}
_LIMITS: Mapping[str, Neutral] = {
    "max_new_tokens": never,
    "n_predict": one_of(-1),
    "num_predict": one_of(-1),
    "t_max_predict_ms": one_of(0, -1),
}
_PROMPT: Mapping[str, Neutral] = {
    "add_generation_prompt": one_of(True),
    "add_special_tokens": one_of(False),
    "continue_final_message": one_of(False),
    "documents": nothing,
    "echo": one_of(False),
    "num_ctx": never,
    "response_prefix": nothing,
    "suffix": nothing,
    "template_vars": nothing,
    "truncate_prompt_tokens": never,
}
_REPORTS: Mapping[str, Neutral] = {
    "decoder_input_details": one_of(False),
    "logprob_token_ids": nothing,
    "n_probs": one_of(0),
    "prompt_logprobs": never,
    "return_hidden_states": one_of(False),
    "return_token_ids": one_of(False),
    "return_tokens": one_of(False),
    "return_tokens_as_token_ids": one_of(False),
    "top_n_tokens": one_of(0),
}
_REASONING: Mapping[str, Neutral] = {
    "include_reasoning": one_of(True),
    "reasoning_format": one_of("auto", "deepseek", "parsed"),
    "separate_reasoning": one_of(True),
    "stream_reasoning": one_of(True),
    "think": never,
    "thinking_budget": never,
    "thinking_token_budget": never,
}
_CONSTRAINTS: Mapping[str, Neutral] = {
    "ebnf": nothing,
    "format": nothing,
    "grammar_string": nothing,
    "json_schema": nothing,
    "regex": nothing,
    "regex_pattern": nothing,
}
_WEIGHTS: Mapping[str, Neutral] = {"lora": nothing, "lora_path": nothing, "lora_request": nothing}
_ENVELOPES: Mapping[str, Neutral] = {"extra_body": nothing, "options": nothing, "sampling_params": nothing}

OTHER_SERVERS: Refusals = {
    # field -> what asks for nothing, and the guarantee that is not given
    name: (neutral, guarantee)
    for fields, guarantee in (
        (_SAMPLERS, "the sampler has temperature, top_k, top_p, min_p, and presence and frequency penalties"),
        (_PENALTIES, "the only penalties are presence and frequency penalties"),
        (_TOKENS, "the model, a stop string or the limit ends a reply, and no token is banned"),
        (_LIMITS, "this protocol has another name for the limit of a reply"),
        (_PROMPT, "the prompt is the whole conversation as the template renders it, and it is not sent back"),
        (_REPORTS, "neither tokens nor probabilities are reported"),
        (_REASONING, "reasoning is always separate from the answer; fields of this protocol switch it on and limit it"),
        (_CONSTRAINTS, CONSTRAINED_ELSEWHERE),
        (_WEIGHTS, "adapters are not loaded"),
        (_ENVELOPES, "parameters belong at the top level of the body"),
    )
    for name, neutral in fields.items()
}
"""All of them."""
