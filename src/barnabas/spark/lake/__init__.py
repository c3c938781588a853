"""From topics to files in a lake, exactly once.

A lake is a directory on any Hadoop file system: `date=2026-11-16/hour=10/...` holds rows, `_manifest` the truth about
which files count and which offsets are in them, `_staging` what is not done yet, `_late` what came after its hour was
complete (if that is the policy). Readers of plain directories see only whole files, because names with an underscore
are hidden from them.

A step of a load is: tasks write under `_staging`; one new file in `_manifest` commits the files *and* the offsets;
then the files are renamed to their places. A crash before the commit leaves nothing but staging, which is thrown away;
after it, the next run finishes the renames before it does anything else. To open a lake is a commit too, and shuts out
the run that had it before.
"""
