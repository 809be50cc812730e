DROP INDEX answers_due;
