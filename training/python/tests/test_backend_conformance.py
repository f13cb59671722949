"""What the adapter relies on of torch, so that a torch that changes it fails here first, and says what.

One process, no runtime: the backends here are as small as the adapter's idea of a backend.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch", "2.14")
dist = pytest.importorskip("torch.distributed")
c10d = dist.distributed_c10d
CUSTOM = dist.ProcessGroup.BackendType.CUSTOM


class Work(dist.Work):
    def __init__(self, result: list[Any] | None = None, error: str = "") -> None:
        super().__init__()
        self.result_, self.error, self.waited = result or [], error, []

    def wait(self, timeout: timedelta | None = None) -> bool:
        self.waited.append(timeout)
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Any:
        def outcome(_: Any) -> Any:
            if self.error:
                raise RuntimeError(self.error)
            return self.result_

        source: Any = torch.futures.Future()
        future = source.then(outcome)
        source.set_result(None)
        return future


class Backend(c10d.C10DBackend):
    supports_splitting = False
    supports_coalescing = True
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    supports_abort_hooks = False
    supports_time_estimate = False
    _supports_time_estimate = False

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.works: list[Work] = []
        self.error = ""

    def getBackendName(self) -> str:
        return "probe"

    def monitored_barrier(self, *arguments: Any) -> None:
        self.calls.append(("monitored_barrier", arguments))

    def start_coalescing(self) -> None:
        self.calls.append(("start_coalescing", ()))

    def supports_tensor_alloc(self, device: Any) -> bool:
        return isinstance(device, torch.device)

    def allocate_tensor(self, size: int, *, dtype: Any, device: Any) -> Any:
        return torch.empty(size, dtype=dtype)


def called(name: str) -> Any:
    def method(self: Backend, *arguments: Any) -> Work:
        self.calls.append((name, arguments))
        tensors = arguments[0] if arguments and isinstance(arguments[0], list) else []
        work = Work(tensors, self.error)
        self.works.append(work)
        return work

    return method


COLLECTIVES = """allreduce allreduce_coalesced broadcast reduce allgather allgather_coalesced all_gather_single
    all_gather_single_coalesced gather scatter reduce_scatter reduce_scatter_single reduce_scatter_single_coalesced alltoall
    all_to_all_single barrier send recv recv_anysource end_coalescing""".split()
for _name in COLLECTIVES:
    setattr(Backend, _name, called(_name))


class Group(dist.ProcessGroup):
    def __init__(self, store: Any, backend: Backend) -> None:
        super().__init__(store, backend.rank(), backend.size())
        self.backend, self.direct = backend, False
        self._set_default_backend(CUSTOM)
        self._register_backend(torch.device("cpu"), CUSTOM, backend)

    def allreduce(self, *arguments: Any, **named: Any) -> Any:
        if self.direct:
            return self.backend.allreduce(*arguments)
        return super().allreduce(*arguments, **named)


def probe(group: bool) -> Iterator[tuple[Any, Backend, list[Any]]]:
    made: list[Any] = []

    def create(options: Any, backend_options: Any) -> Any:
        backend = Backend(options.group_rank, options.group_size)
        result = Group(options.store, backend) if group else backend
        made.append((options, backend, result))
        return result

    name = "probegroup" if group else "probe"
    dist.Backend.register_backend(name, create, extended_api=True, devices=["cpu"])
    dist.init_process_group(name, store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=7))
    yield dist.group.WORLD, made[0][1], made
    dist.destroy_process_group()


@pytest.fixture
def plain() -> Iterator[Any]:
    yield from probe(False)


@pytest.fixture
def subclassed() -> Iterator[Any]:
    yield from probe(True)


def test_a_creator_is_told_all_it_needs(plain: Any) -> None:
    _, _, [(options, *_)] = plain
    assert (options.group_rank, options.group_size, options.timeout) == (0, 1, timedelta(seconds=7))
    assert list(options.global_ranks_in_group) == [] and options.group_id
    assert options.process_group._get_backend_name() == "custom"
    dist.new_group([0])
    options = plain[2][1][0]
    assert list(options.global_ranks_in_group) == [0]


def test_every_call_reaches_a_python_backend_under_its_newest_name(plain: Any) -> None:
    _, backend, _ = plain
    one, two = torch.ones(2), torch.ones(2)
    dist.all_reduce(one)
    dist.all_reduce_coalesced([one, two])
    dist.broadcast(one, 0)
    dist.reduce(one, 0)
    dist.all_gather([two], one)
    dist.all_gather_single(two, one)
    dist.all_gather_into_tensor(two, one)
    dist.gather(one, [two], 0)
    dist.scatter(one, [two], 0)
    dist.reduce_scatter(one, [two])
    dist.reduce_scatter_single(one, two)
    dist.reduce_scatter_tensor(one, two)
    dist.all_to_all([one], [two])
    dist.all_to_all_single(one, two)
    dist.barrier()
    with c10d._coalescing_manager():
        dist.all_gather_single(two, one)
    with c10d._coalescing_manager():
        dist.reduce_scatter_single(two, one)
    names = [name for name, _ in backend.calls]
    assert names == """allreduce allreduce_coalesced broadcast reduce allgather all_gather_single all_gather_single gather scatter
        reduce_scatter reduce_scatter_single reduce_scatter_single alltoall all_to_all_single barrier all_gather_single_coalesced
        reduce_scatter_single_coalesced""".split()
    world = dist.group.WORLD
    for work in (world.send([one], 0, 5), world.recv([one], 0, 5), world.recv_anysource([one], 5)):
        work.wait()
    assert [(name, arguments[1:]) for name, arguments in backend.calls[-3:]] == [("send", (0, 5)), ("recv", (0, 5)), ("recv_anysource", (5,))]


def test_options_say_what_is_not_set(plain: Any) -> None:
    _, backend, _ = plain
    dist.all_reduce(torch.ones(2), dist.ReduceOp.MAX, async_op=True).wait()
    dist.barrier()
    (_, (_, reduce)), (_, (barrier,)) = backend.calls
    assert reduce.timeout.days < 0 and barrier.timeout.days < 0, "a time-out that is not set was negative"
    assert reduce.asyncOp and not barrier.asyncOp
    assert reduce.reduceOp.op == dist.ReduceOp.MAX and hash(reduce.reduceOp.op) == hash(dist.ReduceOp.MAX)
    assert c10d.AllreduceOptions().asyncOp and c10d.BroadcastOptions().asyncOp, "C++ callers wait for what they call"


def test_torchs_shell_around_a_work_only_waits(plain: Any) -> None:
    """Why there is a process group of our own: if this fails, torch has learnt it, and `EireneGroup` may go."""
    _, backend, _ = plain
    shell = dist.all_reduce(torch.ones(2), async_op=True)
    shell.wait()
    assert backend.works[-1].waited == [timedelta(0)], "waiting without a time-out is waiting with zero"
    assert not shell.is_completed() and type(shell) is dist.Work
    assert shell.get_future().wait() is not None
    with pytest.raises(RuntimeError, match="sourceRank"):
        dist.recv(torch.ones(2))


def test_capabilities_are_asked_through_the_class(plain: Any) -> None:
    world, backend, _ = plain
    # torch's own are properties in C++ that ask the Python class: without an attribute there, they would ask themselves.
    # The last is without the line in 2.14.
    estimates = "_supports_time_estimate" if hasattr(c10d.C10DBackend, "_supports_time_estimate") else "supports_time_estimate"
    for name in ("supports_splitting", "supports_coalescing", "supports_shrinking", "supports_reconfigure", "supports_window", estimates):
        assert isinstance(inspect.getattr_static(c10d.C10DBackend, name), property), name
        assert isinstance(getattr(world._get_backend(torch.device("cpu")), name), bool)
    operations = [dist.P2POp(dist.isend, torch.ones(1), group=world, group_peer=0)] if "group_peer" in inspect.signature(dist.P2POp).parameters else []
    if operations:
        for request in dist.batch_isend_irecv(operations):
            request.wait()
        assert [name for name, _ in backend.calls] == ["start_coalescing", "send", "end_coalescing"]


def test_monitored_barriers_reach_a_python_backend(plain: Any) -> None:
    world, backend, _ = plain
    world.monitored_barrier(timedelta(seconds=2), wait_all_ranks=True)
    ((name, (options, wait_all)),) = backend.calls
    assert (name, options.timeout, wait_all) == ("monitored_barrier", timedelta(seconds=2), True)


def test_memory_is_asked_for_through_the_python_object(plain: Any) -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert type(backend) is Backend and backend.supports_tensor_alloc(torch.device("cpu"))
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import ProcessGroupAllocMixin

    assert ProcessGroupAllocMixin(dist.group.WORLD).allocate((2, 3), dtype=torch.float32, device=torch.device("cpu")).numel() == 6


def test_a_group_of_our_own_is_a_group_like_any(subclassed: Any) -> None:
    world, backend, made = subclassed
    assert type(world) is Group and world is made[0][2]
    assert world.group_name and world.group_desc == "default_pg"
    assert c10d._resolve_process_group(world.group_name) is world
    assert type(dist.new_group([0])) is Group
    from torch.distributed.device_mesh import init_device_mesh

    assert type(init_device_mesh("cpu", (1,)).get_group()) is Group


def test_a_group_of_our_own_may_answer_itself(subclassed: Any) -> None:
    world, backend, _ = subclassed
    world.direct = True
    assert type(dist.all_reduce(torch.ones(2), async_op=True)) is Work
    world.direct = False
    # And by `super()` torch's dispatcher is reached, not the override again.
    assert type(dist.all_reduce(torch.ones(2), async_op=True)) is dist.Work
    assert [name for name, _ in backend.calls] == ["allreduce", "allreduce"]
    from torch.distributed.tensor.debug import CommDebugMode

    with CommDebugMode() as mode:
        assert torch._C._len_torch_dispatch_stack() == 1
        dist.all_reduce(torch.ones(2))
    assert mode.get_total_counts() == 1 and torch._C._len_torch_dispatch_stack() == 0
    assert torch._C._autograd._profiler_enabled() is False


def test_ddp_waits_by_futures_and_sees_their_errors(subclassed: Any) -> None:
    _, backend, _ = subclassed
    Backend.allgather = lambda self, outputs, inputs, options: [outputs[0][0].copy_(inputs[0])] and Work(outputs[0])  # type: ignore[attr-defined,method-assign]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    backend.error = "rank 3 has ended"
    with pytest.raises(RuntimeError, match="rank 3 has ended"):
        model(torch.ones(1, 2)).sum().backward()
    Backend.allgather = called("allgather")  # type: ignore[attr-defined,method-assign]


def test_what_the_adapter_takes_of_torchs_own() -> None:
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    assert {"env", "tcp", "file"} <= set(rendezvous._rendezvous_handlers)
    assert rendezvous._query_to_dict("rank=1&world_size=2") == {"rank": "1", "world_size": "2"}
    # 2.14 has no flight recorder of its own for other backends.
    assert isinstance(getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set()), set)
    # By which a rendezvous finds out whom it is for.
    assert "backend" in inspect.unwrap(dist.init_process_group).__code__.co_varnames
    assert "EIRENE" in dist.Backend._plugins or "eirene" not in dist.Backend._plugins
    assert c10d.C10DBackend.Options("name", timeout=timedelta(seconds=3))._timeout == timedelta(seconds=3)
    assert hasattr(torch, "frombuffer")


def test_a_store_in_python_is_asked_by_these_names() -> None:
    asked: list[str] = []

    class Store(dist.Store):
        def set(self, key: str, value: bytes) -> None:
            asked.append("set")

        def get(self, key: str) -> bytes:
            asked.append("get")
            return b"value"

        def add(self, key: str, value: int) -> int:
            asked.append("add")
            return 5

        def check(self, keys: list[str]) -> bool:
            asked.append("check")
            return True

        def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
            asked.append("wait")

        def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
            asked.append("compare_set")
            return b"x"

        def deleteKey(self, key: str) -> bool:
            asked.append("deleteKey")
            return True

        def getNumKeys(self) -> int:
            asked.append("getNumKeys")
            return 3

        def multi_get(self, keys: list[str]) -> list[bytes]:
            asked.append("multi_get")
            return [b"a"]

        def has_extended_api(self) -> bool:
            return True

        def clone(self) -> Any:
            return self

    mine = Store()
    store = dist.PrefixStore("prefix", mine)
    store.set("a", "1")
    assert (store.get("a"), store.add("a", 2), store.check(["a"]), store.compare_set("a", "b", "c")) == (b"value", 5, True, b"x")
    store.wait(["a"], timedelta(seconds=1))
    assert (store.delete_key("a"), store.num_keys(), store.multi_get(["a"])) == (True, 3, [b"a"])
    assert asked == ["set", "get", "add", "check", "compare_set", "wait", "deleteKey", "getNumKeys", "multi_get"]
