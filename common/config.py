"""Configuration of a process group: sections, defaults and ranges, resolved from a TOML file and overrides.

Unknown sections and keys are refused. ``deploy`` resolves the configuration once and writes it to the run directory;
every process reads that file, so that all have the same configuration.
"""

from __future__ import annotations

import ipaddress
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from common.cores import usable_cores
from common.files import write_atomically

CONFIG_FILE = "config.json"
ROOT = Path(__file__).resolve().parent.parent

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
PositiveSeconds = Annotated[float, Meta(gt=0)]
Percentage = Annotated[int, Meta(ge=1, le=100)]


class ConfigError(ValueError):
    """An invalid configuration; the message names the section and key."""


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of all sections."""


class Model(Section, frozen=True):
    """The checkpoint that is served."""

    dir: str = "models/mini"  # relative to the root of the project


class Gateway(Section, frozen=True):
    """The HTTP server."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080  # 0: any free port
    admin_host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"  # for operators, without API keys
    admin_port: Annotated[int, Meta(ge=0, le=65535)] = 0  # 0: any free port, see gateway.admin_address in run_dir
    nice: Annotated[int, Meta(ge=0, le=19)] = 5  # when CPU time is scarce, scheduler and workers take precedence
    max_text_length: Positive = 20_000  # characters
    max_body_bytes: Positive = 32 * 1024 * 1024
    first_audio_deadline: PositiveSeconds = 20.0  # after which a request without sound is refused with 503
    min_frames_cap_seconds: PositiveSeconds = 30.0  # maximum sound of the shortest text
    seconds_per_byte_cap: PositiveSeconds = 0.15  # added to that maximum for each UTF-8 byte of text
    seconds_per_digit_cap: PositiveSeconds = 0.6  # and for each digit, which becomes several words
    turn_bytes: Annotated[int, Meta(ge=0)] = 0  # maximum UTF-8 bytes of a turn; 0: the checkpoint's maximum, or 300
    open_request_seconds: PositiveSeconds = 120.0  # room for sound of a request whose text is still being written
    live_idle_timeout: PositiveSeconds = 320.0  # after which a WebSocket without messages is closed
    live_after_finish: Literal["auto", "close", "keep"] = "auto"  # auto: keep for clients that pool their WebSockets
    max_live: Positive = 1024  # open WebSockets; beyond: 429
    max_live_per_client: Positive = 256  # of them, with one API key, or from one address without keys; beyond: 429
    max_connections: Positive = 4096  # open connections; beyond: 503
    max_connections_per_address: Positive = 1024  # of them, from one client address; beyond: 503
    first_request_timeout: PositiveSeconds = 10.0  # for the head of the first request on a connection
    slow_client_timeout: PositiveSeconds = 30.0  # after which a client that reads nothing is cut off
    encoder_threads: Positive = 2
    reference_seconds: tuple[PositiveSeconds, PositiveSeconds] = (1.0, 60.0)  # shortest and longest reference audio
    max_voices: Positive = 1000
    max_voice_bytes: Positive = 2 * 1024**3  # recordings and codes of the library
    max_references: Positive = 16  # recordings or voices in one request
    reference_cache_bytes: Positive = 64 * 1024 * 1024  # cached codes of recordings that come with requests
    max_buffered_bytes: Positive = 512 * 1024 * 1024  # memory for bodies and unstreamed replies, in all; beyond: 503
    max_spool_bytes: Positive = 4 * 1024**3  # disk (data_dir/spool) for unstreamed replies beyond 1 MiB; beyond: 503
    body_timeout: PositiveSeconds = 60.0  # for the whole body of a request to arrive
    keepalive_timeout: PositiveSeconds = 75.0  # for the head of the next request on a connection
    api_keys_file: str = ""  # TOML file, relative to the root of the project; "": none
    open_listings: bool = True  # models and voices can be listed without an API key
    cors_origins: list[str] = []  # origins whose web pages may use the API; "*": any
    trusted_proxies: list[str] = []  # addresses or networks whose Forwarded or X-Forwarded-For names the client
    allowed_hosts: list[str] = []  # host names by which clients reach the server, beside local ones; "*": any
    openai_voices: dict[str, str] = {}  # aliases of voices in OpenAI's API; "": the default voice
    fish_voices: dict[str, str] = field(  # aliases in Fish's API, for clients with a default of their own (LiveKit)
        default_factory=lambda: {"933563129e564b19a115bedd57b7406a": ""}
    )
    openai_models: tuple[str, ...] = (
        "*tts*",
        "s1*",
        "s2*",
        "speech-*",
        "kokoro*",
        "shoal",
    )  # accepted names
    drain_grace: Seconds = 0.0  # after a signal, while load balancers notice, new requests are still accepted
    drain_timeout: Seconds = 60.0  # then, for the streams under way to finish

    def __post_init__(self) -> None:
        for network in self.trusted_proxies:
            try:
                ipaddress.ip_network(network, strict=False)
            except ValueError as error:
                raise ValueError(f"trusted_proxies: {error}") from None


class Scheduler(Section, frozen=True):
    """Admission, batching and playback."""

    policy: Literal["playback", "fcfs", "fixed"] = "playback"
    max_waiting: Positive = 256  # requests in the queue; beyond: 429
    prefill_budget: Positive = 1024  # prompt tokens per step
    prefill_share: PositiveSeconds = 0.8  # of a frame's length: maximum duration of a step that prefills beside decodes
    max_batch: Positive = 128  # sequences per step
    look_ahead: bool = True  # send the next step and vocoder call before the result of the current one
    prefix_cache: bool = True
    open_seconds: PositiveSeconds = 30.0  # for which a request that waits for more text keeps its slot
    recovery_seconds: PositiveSeconds = 30.0  # for which a request waits for a worker, or a scheduler, after a loss
    refuse_late: bool = True  # refuse at once a request whose deadline can't be met
    chunk: Annotated[int, Meta(ge=1, le=512)] = 10  # frames; for the policies fcfs and fixed
    max_first_chunk: Annotated[int, Meta(ge=1, le=64)] = 8  # frames; this and the following: for the policy playback
    min_chunk: Annotated[int, Meta(ge=1, le=64)] = 2  # frames
    max_chunk: Annotated[int, Meta(ge=1, le=512)] = 48  # frames
    park_seconds: PositiveSeconds = 10.0  # a stream so far ahead of playback sits out a step if another gains
    lean_seconds: PositiveSeconds = 1.0  # a stream so far ahead sits out while another has no sound yet,
    lean_ratio: PositiveSeconds = 1.4  # unless that makes a frame cost more than so many times as much
    kv_reserve: Annotated[float, Meta(ge=0, le=1)] = 0.25  # share of free pages below which no stream sits out
    guard_seconds: PositiveSeconds = 0.5  # buffered sound below which a listener is close to an underrun
    max_call_frames: Positive = 320  # frames per vocoder call; a new stream waits for the call before its own
    unread_seconds: PositiveSeconds = 20.0  # sound that a client has not read, beyond which the vocoder waits for it
    worker_timeout: PositiveSeconds = 5.0  # without an answer to pings, after which a worker is lost
    hang_timeout: PositiveSeconds = 20.0  # at one step or call, and 20 times its expected cost: the worker is lost
    max_encodes: Positive = 64  # reference clips waiting to be encoded
    max_encode_bytes: Positive = 128 * 1024 * 1024  # of samples, of all of them; a minute has 5 to 11 MB
    encode_seconds: PositiveSeconds = 60.0  # for which a clip may wait and be encoded; then 503
    drain_timeout: Seconds = 35.0  # of the scheduler, and of each worker


Preset = Literal["h200-bf16", "h200-published", "h200-s21-fp8"]
Milliseconds = Annotated[float, Meta(ge=0)]


class ArCost(Section, frozen=True):
    """Cost of a step: a preset (``common/cost_models.py``), whose prices may be replaced one by one.

    ``frames``: length of every sequence; 0: endless. For tests of faults, the worker hangs while ``hang_file`` exists
    and dies at a request whose seed is ``poison_seed``.
    """

    preset: Preset = "h200-bf16"
    base_ms: Milliseconds | None = None
    per_sequence_ms: Milliseconds | None = None
    per_prefill_token_ms: Milliseconds | None = None
    frames: Annotated[int, Meta(ge=0)] = 0
    hang_file: str = ""
    poison_seed: int | None = None


class VocoderCost(Section, frozen=True):
    """Cost of a vocoder call: a preset, whose prices may be replaced one by one. ``hang_file``: as in ArCost."""

    preset: Preset = "h200-bf16"
    base_ms: Milliseconds | None = None
    per_frame_ms: Milliseconds | None = None
    hang_file: str = ""


class ArWorker(Section, frozen=True):
    """The AR worker.

    ``threads`` 0: an equal share of the usable cores, and for native frames of a large model all of them. ``dtype``
    "auto": bf16 on a GPU; on a CPU fp32, or bf16 for a large model without native frames on a processor with AMX.
    """

    count: Annotated[int, Meta(ge=1, le=64)] = 1  # processes; name of the second: ar_worker-2
    executor: Literal["torch", "cost"] = "torch"
    device: str = "auto"
    dtype: Literal["auto", "fp32", "bf16"] = "auto"
    deterministic: bool = False  # on a GPU; the CPU always is
    native: bool = True  # frames in C++ on a CPU in fp32, if there is a compiler and they agree with PyTorch's
    graphs: bool = True  # on a GPU: each frame is one CUDA graph
    slots: Annotated[int, Meta(ge=1, le=4096)] = 32
    pages: Annotated[int, Meta(ge=0)] = 0  # 0: 2048 on a CPU; on a GPU as many as fit, see kv_memory_fraction
    kv_memory_fraction: Annotated[float, Meta(gt=0, le=1)] = 0.85  # of a GPU's free memory, once the weights are loaded
    page_size: Annotated[int, Meta(ge=1, le=1024)] = 16
    threads: Annotated[int, Meta(ge=0)] = 0
    active_thread_percentage: Percentage | None = None  # of the GPU's multiprocessors under MPS; none: no cap
    cost: ArCost = field(default_factory=ArCost)


class VocoderWorker(Section, frozen=True):
    """The vocoder worker. ``threads`` 0: an equal share of the cores."""

    count: Annotated[int, Meta(ge=1, le=64)] = 1  # processes
    executor: Literal["torch", "cost"] = "torch"
    device: str = "auto"
    slots: Annotated[int, Meta(ge=1, le=8192)] = 64
    threads: Annotated[int, Meta(ge=0)] = 0
    active_thread_percentage: Percentage | None = None  # of the GPU's multiprocessors under MPS; none: no cap
    cost: VocoderCost = field(default_factory=VocoderCost)


TcpEndpoint = Annotated[str, Meta(pattern=r"^(tcp://[^\s:]+:[0-9]{1,5})?$")]


class Transport(Section, frozen=True):
    """Transport between the processes: sockets in the run directory, or tcp for workers on other machines.

    A worker on another machine runs with a run directory and a configuration of its own that name the same scheduler
    (docs/scaling.md). Tcp connections are encrypted with the keys; without keys, only loopback addresses are accepted.
    """

    scheduler: TcpEndpoint = ""  # tcp://HOST:PORT at which the scheduler listens; "": a socket in the run directory
    audio_host: str = ""  # address at which gateways reach this machine's vocoder workers; "": a socket
    keys: str = ""  # key directory (shoal keys), relative to the root of the project; "": no encryption


class Supervisor(Section, frozen=True):
    """Start and stop of the group."""

    start_timeout: PositiveSeconds = 600.0
    stop_timeout: PositiveSeconds = 20.0  # after the time for draining, a process that still runs is killed
    prometheus_port: Annotated[int, Meta(ge=0, le=65535)] = 0  # loopback port of an additional Prometheus; 0: none
    mps: Literal["auto", "on", "off"] = "auto"  # auto: if both kinds of worker use one NVIDIA GPU
    mps_wait: Seconds = 60.0  # for which a starting worker waits while MPS recovers from a fault


class Debug(Section, frozen=True):
    """Records of the recent past, for ``/debug``."""

    requests: Positive = 256  # ended ones
    events: Positive = 4096  # steps, and as many vocoder calls


class Log(Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"


class Config(Section, frozen=True):
    """All sections. ``data_dir``: persistent data, such as voices; ``run_dir``: sockets, logs, pids, ports of a run."""

    data_dir: str = "data"
    run_dir: str = ""
    model: Model = field(default_factory=Model)
    gateway: Gateway = field(default_factory=Gateway)
    scheduler: Scheduler = field(default_factory=Scheduler)
    ar_worker: ArWorker = field(default_factory=ArWorker)
    vocoder_worker: VocoderWorker = field(default_factory=VocoderWorker)
    transport: Transport = field(default_factory=Transport)
    supervisor: Supervisor = field(default_factory=Supervisor)
    debug: Debug = field(default_factory=Debug)
    log: Log = field(default_factory=Log)

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other.

        Raises:
            ValueError: naming both.
        """
        scheduler, ar_worker = self.scheduler, self.ar_worker
        bounds = [  # (a setting, its value, the setting that bounds it from below, its value)
            ("scheduler.prefill_budget", scheduler.prefill_budget, "ar_worker.page_size", ar_worker.page_size),
            ("scheduler.max_chunk", scheduler.max_chunk, "scheduler.min_chunk", scheduler.min_chunk),
            ("scheduler.max_chunk", scheduler.max_chunk, "scheduler.max_first_chunk", scheduler.max_first_chunk),
            ("ar_worker.pages", ar_worker.pages or ar_worker.slots, "ar_worker.slots", ar_worker.slots),
        ]
        for name, value, least_name, least in bounds:
            if value < least:
                raise ValueError(f"{name} = {value} is less than {least_name} = {least}")

    @property
    def model_dir(self) -> Path:
        return (ROOT / self.model.dir).resolve()

    @property
    def data_path(self) -> Path:
        return (ROOT / self.data_dir).resolve()

    @property
    def voices_path(self) -> Path:
        return self.data_path / "voices"

    @property
    def run_path(self) -> Path:
        return Path(self.run_dir)


def resolve(file: Path | None = None, overrides: list[str] | None = None) -> Config:
    """Resolve a configuration: defaults, then the TOML file, then ``section.key=value`` overrides.

    Raises:
        ConfigError: naming the file or override, and the key.
    """
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text())
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: {error}") from None
    for override in overrides or []:
        _apply(values, override)
    try:
        return msgspec.convert(values, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"configuration: {error}") from None


def _apply(values: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"{override!r} is not section.key=value")
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{override!r}: {key} is not a section")
    values[keys[-1]] = _toml_value(text.strip())


def _toml_value(text: str) -> Any:
    """Parse a TOML value; anything else is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def save(config: Config) -> None:
    """Write the configuration to its run directory, for the processes of the group."""
    write_atomically(config.run_path / CONFIG_FILE, msgspec.json.format(msgspec.json.encode(config)))


def load(run_dir: Path) -> Config:
    """Read what :func:`save` wrote."""
    return msgspec.json.decode((run_dir / CONFIG_FILE).read_bytes(), type=Config)


def worker_names(config: Config) -> list[tuple[str, str]]:
    """Name and role of each worker of the group: ar_worker, ar_worker-2, ..."""
    counts = [("vocoder_worker", config.vocoder_worker.count), ("ar_worker", config.ar_worker.count)]
    return [(role if n == 1 else f"{role}-{n}", role) for role, count in counts for n in range(1, count + 1)]


def threads_per_worker(configured: int, workers: int = 2) -> int:
    """Threads of each worker: as configured, or an equal share of the cores that this process may use."""
    return configured or max(1, usable_cores() // workers)
