"""Five trainings in Paceline, Accelerate, Fabric and Lightning, beside a plain loop."""
