"""Panels of the dashboard, row by row. Rates use Grafana's interval, which spans several scrapes."""

from __future__ import annotations

from typing import NamedTuple

CHOSEN = 'instance=~"$instance"'
GPU_ROW = "GPU (where a worker computes on one)"


class Panel(NamedTuple):
    """A panel. ``unit``: one of Grafana's: s, bytes, percentunit (a share), reqps (requests/s), short (a number).

    ``queries``: legend to expression.
    """

    title: str
    unit: str
    text: str
    queries: dict[str, str]


def now(name: str, *labels: str, where: str = "") -> str:
    """Query the sum of a gauge by labels."""
    return f"sum by ({', '.join(labels)}) ({name}{{{CHOSEN}{where}}})"


def rate(name: str, *labels: str, where: str = "") -> str:
    """Query the growth of a counter per second by labels."""
    return f"sum by ({', '.join(labels)}) (rate({name}{{{CHOSEN}{where}}}[$__rate_interval]))"


def worst(name: str, *labels: str) -> str:
    """Query the maximum of a gauge by labels."""
    return f"max by ({', '.join(labels)}) ({name}{{{CHOSEN}}})"


def share(part: str, whole: str) -> str:
    """Query a share that is 0 while the whole is 0."""
    return f"{part} / ({whole} > 0) or 0 * {whole}"


def spread(title: str, name: str, text: str, unit: str = "s") -> Panel:
    """Query percentiles of a histogram."""
    buckets = rate(f"{name}_bucket", "le")
    return Panel(title, unit, text, {f"p{n}": f"histogram_quantile({n / 100}, {buckets})" for n in (50, 95, 99)})


def single(title: str, unit: str, text: str, query: str, legend: str) -> Panel:
    return Panel(title, unit, text, {legend: query})


_SOUND = rate("shoal_audio_seconds_total")
_STREAMS = rate("shoal_audio_underrun_seconds_count")
_SMOOTH = rate("shoal_audio_underrun_seconds_bucket", where=', le="0.12"')
_STOOD_STILL = share(f"({_STREAMS} - {_SMOOTH})", _STREAMS)
_PADDING = rate("shoal_vocoder_padding_frames_total")
_VOCODED = rate("shoal_vocoder_frames_total")

_LISTENERS = [
    spread("Queue wait", "shoal_request_queue_time_seconds", "How long requests wait for a place."),
    spread("Chunk gap", "shoal_audio_chunk_gap_seconds", "Between chunks of a stream."),
    spread(
        "Chunk lateness",
        "shoal_audio_chunk_lateness_seconds",
        "How long after its listener had run dry a chunk came. In good order all of it is 0.",
    ),
]

_FIRST_AUDIO = [
    spread("Time to first audio", "shoal_time_to_first_audio_seconds", "From arrival to the first bytes of sound."),
    spread("Underrun", "shoal_audio_underrun_seconds", "For how long a stream's listener stood still, in all."),
    single(
        "Listeners who stood still",
        "percentunit",
        "Share of the streams with more than 0.12 s of silence in all.",
        _STOOD_STILL,
        "of the streams",
    ),
    Panel(
        "Goodput",
        "short",
        "Seconds of sound per second, and as much of it as listeners heard who never stood still.",
        {"sound": _SOUND, "sound without gaps": f"{_SOUND} * (1 - ({_STOOD_STILL}))"},
    ),
    spread(
        "Real-time factor",
        "shoal_real_time_factor_ratio",
        "Time a stream takes per second of its sound. Under load it nears 1: nobody is served sooner than needed.",
        "short",
    ),
    spread("Request duration", "shoal_e2e_request_latency_seconds", "From arrival to end."),
]

_REQUESTS = [
    Panel(
        "Running and waiting",
        "short",
        "Requests of the engine, and open WebSockets.",
        {
            "running": now("shoal_num_requests_running"),
            "waiting": now("shoal_num_requests_waiting"),
            "WebSockets": now("shoal_websocket_connections"),
        },
    ),
    single("Ends", "reqps", "Speech requests.", rate("shoal_requests_total", "outcome"), "{{outcome}}"),
    single("Given up", "reqps", "Speech requests, by cause.", rate("shoal_cancels_total", "cause"), "{{cause}}"),
    single(
        "Ends in the engine",
        "reqps",
        "A long text is several requests of the engine.",
        rate("shoal_requests_finished_total", "reason"),
        "{{reason}}",
    ),
    single("HTTP", "reqps", "All routes, by status.", rate("shoal_http_requests_total", "code"), "{{code}}"),
    Panel(
        "Text in, sound held back",
        "short",
        "Characters accepted, and how often codes had to wait for a client to read, per second.",
        {"characters": rate("shoal_input_characters_total"), "credit stalls": rate("shoal_credit_stalls_total")},
    ),
]

_BATCHES = [
    spread("Frames per step", "shoal_step_batch_size", "Sequences that get a frame in one AR step.", "short"),
    single(
        "AR step",
        "s",
        "Mean device time; prefill: with prompt positions in it.",
        share(rate("shoal_step_seconds_sum", "phase"), rate("shoal_step_seconds_count", "phase")),
        "{{phase}}",
    ),
    spread("Prefill time", "shoal_request_prefill_time_seconds", "From admission to the first codes."),
    spread("Streams per vocoder call", "shoal_vocoder_batch_size", "Whose sound is made together.", "short"),
    spread("Vocoder call", "shoal_vocoder_call_seconds", "Device time."),
    Panel(
        "Workers at work",
        "percentunit",
        "Share of the time, summed over workers of a kind. AR: 1 whenever anything runs. The vocoder must stay below.",
        {
            "AR": rate("shoal_step_seconds_sum"),
            "vocoder": rate("shoal_vocoder_call_seconds_sum"),
            "of the vocoder's frames, padding": share(_PADDING, f"({_PADDING} + {_VOCODED})"),
        },
    ),
    Panel("Frames", "short", "Per second.", {"drawn": rate("shoal_generation_frames_total"), "to sound": _VOCODED}),
]

_MEMORY = [
    single("KV pages", "short", "By state.", now("shoal_kv_pages", "state"), "{{state}}"),
    Panel(
        "Slots in use",
        "short",
        "Sequences, and streams of sound, which last longer.",
        {
            "AR": now("shoal_ar_slots", where=', state="used"'),
            "vocoder": now("shoal_vocoder_slots", where=', state="used"'),
        },
    ),
    Panel(
        "Found in caches",
        "percentunit",
        "Share of prompt positions in the prefix cache, and of recordings already encoded.",
        {
            "prompts": share(rate("shoal_prefix_cache_hits_total"), rate("shoal_prefix_cache_queries_total")),
            "recordings": share(rate("shoal_reference_cache_hits_total"), rate("shoal_reference_cache_queries_total")),
        },
    ),
    single(
        "Model memory",
        "bytes",
        "Held for good, by use.",
        f'sum by (process, use) ({{__name__=~"shoal_(ar|vocoder)_memory_bytes", {CHOSEN}}})',
        "{{process}} {{use}}",
    ),
    single(
        "Resident memory", "bytes", "Of each process.", now("process_resident_memory_bytes", "process"), "{{process}}"
    ),
]

_EACH = "{{instance}} {{process}}"
_PROCESSES = [
    single("Up", "short", "1: answered when asked.", worst("shoal_up", "instance", "process"), _EACH),
    single(
        "Restarts",
        "short",
        "Since the group was started.",
        worst("shoal_process_restarts_total", "instance", "process"),
        _EACH,
    ),
    single(
        "Heartbeat age",
        "s",
        "Since a process was last heard of.",
        worst("shoal_heartbeat_age_seconds", "instance", "process"),
        _EACH,
    ),
    single("Processor", "short", "Cores in use.", rate("process_cpu_seconds_total", "process"), "{{process}}"),
    single(
        "Queues between processes",
        "short",
        "Messages received and not yet handled, or still to be sent.",
        now("shoal_zmq_queue_messages", "process", "link"),
        "{{process}} {{link}}",
    ),
    Panel(
        "What runs",
        "short",
        "Groups that are ready, and processes by version and model.",
        {"ready": now("shoal_ready"), "{{version}} {{model}}": now("shoal_build_info", "version", "model")},
    ),
]

_DEVICE = ("instance", "device")
_GPU = [
    Panel(
        "GPU memory",
        "bytes",
        "Held by each process, held in all, and there.",
        {
            "{{device}} {{process}}": worst("shoal_gpu_memory_used_bytes", *_DEVICE, "process"),
            "{{device}} in use": worst("shoal_gpu_device_memory_used_bytes", *_DEVICE),
            "{{device}} has": worst("shoal_gpu_device_memory_bytes", *_DEVICE),
        },
    ),
    single(
        "GPU utilization",
        "percentunit",
        "Share of the time in which anything ran.",
        worst("shoal_gpu_utilization_ratio", *_DEVICE),
        "{{instance}} {{device}}",
    ),
]

ROWS = {
    "Waiting, and being supplied": _LISTENERS,
    "First audio, gaps and goodput": _FIRST_AUDIO,
    "Requests": _REQUESTS,
    "Batches": _BATCHES,
    "Memory": _MEMORY,
    "Processes": _PROCESSES,
    GPU_ROW: _GPU,
}
"""Title to panels, from top to bottom."""
