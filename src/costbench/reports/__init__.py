"""Tables, figures and pages made of result files. No model, no training, no torch in here."""
