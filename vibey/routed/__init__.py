"""Routed: tasks of a user's own Celery project whose calls go through the router.

```python
from vibey import RoutedTask

@app.task(base=RoutedTask, engines=["gpu", "cloud"], bind=True)
def translate(self, book): ...
```

**Where the body runs.** Not in the user's Celery worker: there a process could take a slot and then stall, be stopped
or outlive its lease, and nobody would end it. The call becomes a job, and the body runs where every job runs: in a
supervised process of its own, started by a Vibey worker on the engine that was granted, with a lease, a time limit and
a kill that reaches the whole tree. An engine says by `app = "project.celery:app"` whose tasks it may run; a call can
name no other code than a task registered there.

**Who does what.** Celery itself makes the message and traces the body; between the two lies the router in the broker's
place. `RoutedTask.apply_async` lets Celery compose its message, with root and parent, chain, chord, links and headers,
and takes it where it would have been published (`vibey.routed.carrier`); the message is the job's payload. The child
(`vibey.routed.child`) hands it to Celery's tracer, which stores the result, sends the callbacks and the next step of a
chain, counts the chord, and turns `retry` into another `apply_async`. So every state a caller sees was written by
Celery, in the app's own result backend, and canvas needs no code here: a step is routed if its task is.

**What the job makes of it.** `countdown` and `eta` are when the job is due (no message waits in a broker), `expires`
its deadline, `priority` its priority. The idempotency key is the task's id with the number of its retry, so a call
that is sent twice runs once. SUCCESS, RETRY and a body that raised Ignore are a job that succeeded: its run did what
it was for, and a retry is a job of its own. FAILURE is a final failure of the work. What a body raises of
`vibey.engines.calling` (a provider's refusal, a fault of the engine, a hand-off) is the router's affair and no state
of the task: the circuit hears of it, and the job goes on elsewhere.

**Ends nobody could tell.** A crash, a lost lease, a time limit of the engine or a cancel may end a job whose body
never came to an end. Until its attempts are used it is run again, as with `acks_late`. After that, or when it is
cancelled or past its deadline, the result backend has to hear of it: the job's `tell_after` says so, a worker of an
engine with an app claims the ending for a minute and starts `vibey.routed.tell`, which writes FAILURE
(`WorkerLostError`) or REVOKED, fails the chord or chain, and sends the errbacks. Failures of that: the teller dies,
and another claims the ending when the minute is over; it dies between telling and saying so, and errbacks are sent
twice. A job that ends succeeded, or failed by its own last word, was told by its own run: told and settled are two
systems, and a run killed between them is run again (Celery's `worker_deduplicate_successful_tasks` then spares the
body).

**Calls that come by the broker.** A program that knows a routed task by name only (`app.send_task`) sends a message to
a user's worker. There `before_start` hands it to the router under the same id and ends with Ignore: no slot is passed
by.
"""

from vibey.client import TaskWishes
from vibey.engines.calling import CallInfo
from vibey.routed.task import RoutedResult, RoutedTask

__all__ = ["CallInfo", "RoutedResult", "RoutedTask", "TaskWishes"]
