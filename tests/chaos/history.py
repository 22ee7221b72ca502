"""Checks what clients recorded of their calls (worker/client/call_history.h) against the promises.

    violations, counts = history.check(folder, job, mode, bound=2, slots=0)

What is compared are the clients' own records, of all incarnations of all tasks,
whoever killed them:

once       SSP, ASP: at the end a shard counts (its version) as many pushes as were acknowledged,
           and at most those beside them whose answer never came. BSP: it has one version for each
           iteration, and each slot of each was pushed.
own reads  A reader never sees a shard go back. (Not so the pulls of BSP, which name the version
           that they get: a task may take over work of an earlier iteration than that of a pull
           which it gave up half-way.)
seen       SSP, ASP: a read sees every push that was acknowledged, to whomever, before it was asked
           for, and none that was never sent.
exactly c  BSP: a pull of iteration c sees version c, not before all slots of c - 1 were pushed.
staleness  SSP: once a pull of iteration c is answered, no worker that took part all the while first
           sends a push of an iteration up to c - 1 - bound.

The version that counts at the end is that of the last read of each shard, by which the model was
exported. Versions are the servers' own counts: that they count what is in the values is shown by
the bits of BSP, and by the simulator. Jobs that go back to a checkpoint are not for this checker.
"""

import bisect
import collections
import pathlib

VIOLATIONS_MAX = 20  # More are counted, and not told.

Push = collections.namedtuple(
    "Push", "incarnation shard sequence iteration slots begun answered period")
Read = collections.namedtuple("Read", "incarnation shard iteration kind begun answered version")


class Record:
    """One push, as known from the lines that were read so far."""

    def __init__(self, iteration, slots, begun, period):
        self.iteration, self.slots = iteration, slots
        self.begun, self.answered, self.period = begun, None, period


class Incarnation:
    """The file of one incarnation of one task."""

    def __init__(self, path):
        self.name = path.stem
        self.pushes = {}  # (shard, sequence): Record
        self.reads = []
        self.problems = []
        self._messages = {}  # Number: (time, kind, iteration, [(shard, sequence)])
        self._period = None  # When the work began that it trains for; None: it does not train.
        self._start = None
        for line in path.read_text().split("\n")[:-1]:  # The last one may be torn: killed.
            self._take(line.split(" "))

    def _take(self, words):
        take = {"H": lambda *_: None, "W": self._assigned, "B": self._begun, "A": self._answered}
        take[words[0]](*words[1:])

    def _assigned(self, time, what, start):
        if what != "train":
            self._period = None
        elif self._period is None or self._start != start:
            self._period = int(time)
        self._start = start

    def _begun(self, time, message, kind, iteration, slots, *shards):
        named = [(shard, int(sequence)) for shard, sequence in (s.split(":") for s in shards)]
        self._messages[message] = (int(time), kind, int(iteration), named)
        if kind != "push":
            return
        for key in named:
            known = self.pushes.setdefault(
                key, Record(int(iteration), slots, int(time), self._period))
            if (known.iteration, known.slots) != (int(iteration), slots):
                self.problems.append(f"{self.name}: push {key} is of iteration {known.iteration}, "
                                     f"slots {known.slots}, and of {iteration}, {slots}")

    def _answered(self, time, message, *shards):
        begun, kind, iteration, named = self._messages.pop(message)
        for key, answer in zip(named, shards):
            shard, outcome, version = answer.split(":")
            if outcome != "done":
                continue
            if kind == "push":
                record = self.pushes[key]
                record.answered = record.answered or int(time)
            else:
                self.reads.append(Read(self.name, shard, iteration, kind, begun, int(time),
                                       int(version)))


class History:
    def __init__(self, folder, job):
        files = sorted(pathlib.Path(folder).glob(f"{job}-*.history"))
        incarnations = [Incarnation(path) for path in files]
        self.problems = [problem for each in incarnations for problem in each.problems]
        self.pushes = collections.defaultdict(list)  # By shard.
        self.reads = collections.defaultdict(list)
        for incarnation in incarnations:
            for (shard, sequence), r in incarnation.pushes.items():
                self.pushes[shard].append(Push(incarnation.name, shard, sequence, r.iteration,
                                               r.slots, r.begun, r.answered, r.period))
            for read in incarnation.reads:
                self.reads[read.shard].append(read)
        self.shards = sorted(set(self.pushes) | set(self.reads))

    def counts(self):
        pushes = [push for shard in self.shards for push in self.pushes[shard]]
        acknowledged = sum(push.answered is not None for push in pushes)
        return {"shards": len(self.shards), "pushes": len(pushes), "acknowledged": acknowledged,
                "reads": sum(len(reads) for reads in self.reads.values()),
                "final": min((self.final(shard) or 0 for shard in self.shards), default=0)}

    def final(self, shard):
        """The version that the last reader of the shard saw, once all was pushed."""
        last = max((max(push.begun, push.answered or 0) for push in self.pushes[shard]), default=0)
        reads = [read for read in self.reads[shard]
                 if read.kind == "snapshot" and read.begun >= last]
        return max(reads, key=lambda read: read.answered).version if reads else None


def once(history, shard, mode, slots):
    final = history.final(shard)
    if final is None:
        yield f"shard {shard}: nobody read it after the last push"
        return
    pushes = history.pushes[shard]
    if mode == "bsp":
        pushed = {(push.iteration, slot) for push in pushes for slot in slots_of(push)}
        for push in pushes:
            if push.answered is not None and push.iteration >= final:
                yield (f"shard {shard}: {push.incarnation} pushed iteration {push.iteration}, "
                       f"which was acknowledged, and the shard ends with version {final}")
        missing = [(c, m) for c in range(final) for m in range(slots) if (c, m) not in pushed]
        if missing:
            yield (f"shard {shard}: version {final}, and nobody pushed (iteration, slot) "
                   f"{missing[:5]}")
        return
    acknowledged = sum(push.answered is not None for push in pushes)
    if not acknowledged <= final <= len(pushes):
        yield (f"shard {shard}: counts {final} pushes; {acknowledged} were acknowledged and "
               f"{len(pushes) - acknowledged} never answered")


def slots_of(push):
    begin, end = push.slots.split("-")
    return range(int(begin), int(end))


def own_reads(history, shard, mode):
    by_incarnation = collections.defaultdict(list)
    for read in history.reads[shard]:
        if mode != "bsp" or read.kind != "pull":
            by_incarnation[read.incarnation].append(read)
    for incarnation, reads in by_incarnation.items():
        ended = sorted(reads, key=lambda read: read.answered)
        newest, index = 0, 0
        for read in sorted(reads, key=lambda read: read.begun):
            while index < len(ended) and ended[index].answered < read.begun:
                newest = max(newest, ended[index].version)
                index += 1
            if read.version < newest:
                yield f"shard {shard}: {incarnation} read version {newest}, and then {read.version}"


def seen(history, shard):
    acknowledged = sorted(push.answered for push in history.pushes[shard] if push.answered)
    begun = sorted(push.begun for push in history.pushes[shard])
    for read in history.reads[shard]:
        least = bisect.bisect_left(acknowledged, read.begun)
        most = bisect.bisect_right(begun, read.answered)
        if not least <= read.version <= most:
            yield (f"shard {shard}: {read.incarnation} read version {read.version} for iteration "
                   f"{read.iteration}; {least} pushes had been acknowledged when it asked, and "
                   f"{most} sent when it was answered")


def exactly_c(history, shard, slots):
    first = {}  # (iteration, slot): when it was sent first.
    for push in history.pushes[shard]:
        for slot in slots_of(push):
            key = (push.iteration, slot)
            first[key] = min(push.begun, first.get(key, push.begun))
    for read in history.reads[shard]:
        if read.kind != "pull":
            continue
        if read.version != read.iteration:
            yield (f"shard {shard}: {read.incarnation} pulled iteration {read.iteration} and read "
                   f"version {read.version}")
        late = [slot for slot in range(slots) if read.iteration > 0
                and first.get((read.iteration - 1, slot), read.answered + 1) > read.answered]
        if late:
            yield (f"shard {shard}: {read.incarnation} pulled iteration {read.iteration} before "
                   f"slots {late} of {read.iteration - 1} were sent")


def staleness(history, shard, bound):
    # By incarnation and period: its iterations, ascending, and the latest time at which one up to
    # there was sent first. What nobody acknowledged may be of an incarnation that was fenced off.
    periods = collections.defaultdict(list)
    for push in history.pushes[shard]:
        if push.answered is not None and push.period is not None:
            periods[push.incarnation, push.period].append((push.iteration, push.begun))
    for key, sent in periods.items():
        sent.sort()
        latest = []
        for _, begun in sent:
            latest.append(max(begun, latest[-1]) if latest else begun)
        periods[key] = ([iteration for iteration, _ in sent], latest)
    for read in history.reads[shard]:
        if read.kind != "pull":
            continue
        needed = read.iteration - 1 - bound
        for (incarnation, period), (iterations, latest) in periods.items():
            if incarnation == read.incarnation or period >= read.begun:
                continue
            index = bisect.bisect_right(iterations, needed) - 1
            if index >= 0 and latest[index] > read.answered:
                yield (f"shard {shard}: {read.incarnation} was answered a pull of iteration "
                       f"{read.iteration}, and {incarnation} sent one up to {needed} only "
                       f"afterwards")


def check(folder, job, mode, bound=0, slots=0):
    """Returns ([what was violated], what was counted). `slots`: of a BSP job."""
    history = History(folder, job)
    counts = history.counts()
    problems = list(history.problems)
    if not counts["acknowledged"] or not counts["reads"]:
        problems.append(f"{job} has no history in {folder}: {counts}")
    for shard in history.shards:
        problems += once(history, shard, mode, slots)
        problems += own_reads(history, shard, mode)
        if mode == "bsp":
            problems += exactly_c(history, shard, slots)
        else:
            problems += seen(history, shard)
        if mode == "ssp":
            problems += staleness(history, shard, bound)
    if len(problems) > VIOLATIONS_MAX:
        problems[VIOLATIONS_MAX:] = [f"and {len(problems) - VIOLATIONS_MAX} more"]
    return problems, counts
