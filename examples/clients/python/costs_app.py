"""A FastAPI application in which a handler reports the cost of its work."""

from fastapi import FastAPI

from sluice import Sluice, SluiceMiddleware, outcome

app = FastAPI()
app.add_middleware(SluiceMiddleware, sluice=Sluice("http://localhost:8081"))


@app.get("/search")
async def search(q: str):
    rows = [row for row in ("apple", "pear", "apricot") if q in row]
    outcome(cost=len(rows))
    return rows
