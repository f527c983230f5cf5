"""What the holder of the data may see and nobody else: diagnoses, realised errors, pointwise scores. Confidential."""
