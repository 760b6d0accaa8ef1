"""The demo: the whole product at work on one machine, with no engine, account or server of one's own.

What is real: Postgres and a Redis-compatible server (the embedded ones, in the demo's own folder), the Celery workers
and beat, every routing decision, the engines' processes, and the work: each job clones a git repository, changes it,
builds it, runs its tests and commits. What is not: the four engines are four configurations of one small program
(`vibey.demo.engine`), and the two called paid cost nothing.

    folder      where everything is kept, its configuration, its repository
    crew        the demo's own processes: workers and beat
    conduct     one demo from start to end
    screen      what a person sees meanwhile
    report      what remains to be said afterwards

Data beside them: `jobs.jsonl` (the jobs, as `vibey enqueue --batch` would take them), `project/` (what they work on)
and `config.toml` (the four engines).
"""
