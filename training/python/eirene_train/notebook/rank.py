"""``python -m eirene_train.notebook.rank``: a rank that carries out a notebook's cells. Started by the notebook, through a launcher."""

from ._worker import main

if __name__ == "__main__":
    main()
