#!/usr/bin/env bash
# Trains on two workers, kills the run in the middle without a warning, resumes it on three, and
# checks that each sample was seen exactly once in every epoch. Half a minute, on any machine.
set -euo pipefail

here=$(dirname "$0")
name=resume-$$ # so that the folder can be told from those of other runs

paceline run "$here/train.py" -n 2 --save-every 20 --ledger --name "$name" &
run=$!

# A checkpoint of step 100 or one of the next: the run is in the middle.
until compgen -G "runs/$name-*/checkpoints/step-0000000[12]??" > /dev/null; do
  kill -0 "$run" # or it ended before its time
  sleep 0.05
done
kill -KILL "$run" # by its number; the workers go with it
wait "$run" || true

echo "Killed. On three workers it goes on from the last checkpoint:"
paceline resume runs/"$name"-* -n 3

echo "Each of the 1,797 digits once in each of the 8 epochs:"
paceline ledger runs/"$name"-*

paceline report runs/"$name"-* -o resume.html
